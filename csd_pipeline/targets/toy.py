"""A target small enough to enumerate: every law is a table entry, so output laws can be tested exactly."""

from __future__ import annotations

import itertools

import torch
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn

from csd_pipeline.decoding.indexing import admit_rows
from csd_pipeline.decoding.tree import TreeShape

from .base import LENGTH_BUCKET, Grid, PromptBatch, TargetAdapter, TargetSession


class ToyTarget(ModelMixin, ConfigMixin):
    """Random logits for every prefix of at most ``rows * columns - 1`` tokens over ``vocabulary`` codes.

    Args:
        vocabulary: number of codes.
        rows: grid rows.
        columns: grid columns.
        classes: number of prompts; the last one is the unconditional prompt.
        scale: standard deviation of the logits.
        seed: seed of the table.
    """

    @register_to_config
    def __init__(
        self, vocabulary: int = 3, rows: int = 2, columns: int = 2, classes: int = 2, scale: float = 1.0, seed: int = 0
    ):
        super().__init__()
        prefixes = sum(vocabulary**n for n in range(rows * columns))
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(scale * torch.randn(classes, prefixes, vocabulary, generator=generator), False)

    def prefix_index(self, tokens: Tensor, length: Tensor) -> Tensor:
        """[...] table index of the first ``length`` [...] tokens of [..., N] sequences."""
        vocabulary = self.config.vocabulary
        place = torch.arange(tokens.shape[-1], device=tokens.device)
        weight = torch.where(place < length[..., None], vocabulary ** (length[..., None] - 1 - place).clamp(min=0), 0)
        offset = (vocabulary**length - 1) // (vocabulary - 1) if vocabulary > 1 else length
        return offset + (tokens * weight).sum(-1)

    def enumerate_law(self, warp, prompt: int = 0) -> dict[tuple[int, ...], float]:
        """Exact law of whole sequences under ``warp`` (guidance against the last class)."""
        law = {}
        count = self.config.rows * self.config.columns
        for sequence in itertools.product(range(self.config.vocabulary), repeat=count):
            tokens = torch.tensor(sequence).expand(count, count)
            index = self.prefix_index(tokens, torch.arange(count))
            rows = [prompt, -1] if warp.guided else [prompt]
            laws = warp.laws(self.table[rows][:, index], images=1)[0]
            law[sequence] = laws[torch.arange(count), torch.tensor(sequence)].double().prod().item()
        return law


class ToySession(TargetSession):
    """Keeps the tokens themselves as its cache."""

    def __init__(self, model: ToyTarget, prompt: PromptBatch, tokens: int, window: int):
        ids, _ = prompt.rows()
        super().__init__(model, prompt.images, len(ids))
        self.prompts, self.count = ids[:, -1].clone(), tokens
        self.written = torch.zeros(len(ids), tokens + window, dtype=torch.int64, device=ids.device)

    def _prefill(self) -> Tensor:
        return self.model.table[self.prompts, :1]

    def reach(self, longest: int, count: int, bucket: int = LENGTH_BUCKET) -> int:
        """Nothing is cached, the whole table is at hand."""
        return 0

    def _step(self, tokens: Tensor, committed: Tensor, tree: TreeShape | None) -> Tensor:
        copies = self.rows // self.images
        tokens, committed = tokens.repeat(copies, 1), committed.repeat(copies)
        slots = committed[:, None] - 1 + torch.arange(tokens.shape[1], device=tokens.device)
        self.written.scatter_(1, slots, tokens)
        read, length = self.written[:, None].expand(-1, slots.shape[1], -1), slots + 1
        if tree is not None:
            read, length = self._paths(tokens, committed, tree)
        length = length.clamp(max=self.count - 1)  # beyond the last position only padding is asked for
        index = self.model.prefix_index(read[..., : self.count], length)
        return self.model.table[self.prompts[:, None], index]

    def _paths(self, tokens: Tensor, committed: Tensor, tree: TreeShape) -> tuple[Tensor, Tensor]:
        """[R, T, slots] what every token of a tree reads, its ancestors where they belong; [R, T] how many that are."""
        place = committed[:, None] - 1 + tree.place
        spare = self.written.shape[1] - 1
        slot = torch.where(tree.visible, place[:, None], spare)
        read = self.written[:, None].repeat(1, tokens.shape[1], 1)
        return read.scatter_(2, slot, tokens[:, None].expand_as(slot)), place + 1

    def _adopt(self, committed: Tensor, path: Tensor) -> None:
        last = committed[:, None] - 1
        moved = self.written.gather(1, last + path)
        self.written.scatter_(1, last + 1 + torch.arange(path.shape[1], device=path.device), moved)

    def _keep(self, rows: Tensor) -> None:
        self.prompts, self.written = self.prompts[rows], self.written[rows]

    def _admit(self, rows: Tensor, newcomers: ToySession) -> None:
        admit_rows(self.prompts, rows, newcomers.prompts)
        admit_rows(self.written, rows, newcomers.written)


class ToyAdapter(TargetAdapter):
    """Adapter of :class:`ToyTarget`; a prompt is one class index."""

    family = "toy"

    @property
    def vocabulary(self) -> int:
        return self.model.config.vocabulary

    @property
    def grid(self) -> Grid:
        return Grid(self.model.config.rows, self.model.config.columns)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(self.grid.rows, self.grid.columns)]

    @property
    def codebook(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.model.config.seed)
        return torch.randn(self.vocabulary, 2, generator=generator).to(self.model.device)

    def open(self, prompt: PromptBatch, window: int) -> ToySession:
        return ToySession(self.model, prompt, self.grid.tokens, window)

    def decode(self, tokens: Tensor) -> Tensor:
        shade = tokens.view(-1, 1, self.grid.rows, self.grid.columns).float() / (self.vocabulary - 1)
        return (2 * shade - 1).expand(-1, 3, -1, -1)

    def format_prompt(self, prompt: str, tokenizer) -> str:
        return prompt

    def unconditional(self, ids: Tensor, tokenizer=None) -> Tensor:
        return torch.full_like(ids, self.model.config.classes - 1)
