"""What a target model must provide to the decoding loop, and the cached session shared by all transformers targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from csd_pipeline.decoding.cache import RowCache
from csd_pipeline.decoding.indexing import admit_rows, count_up
from csd_pipeline.decoding.tree import TreeShape

LENGTH_BUCKET = 64  # attention reads the cache up to a multiple of this


@dataclass(frozen=True)
class Grid:
    """Where the image tokens go: ``rows`` x ``columns`` tokens in raster order.

    Args:
        rows: code rows.
        columns: tokens per row: picture codes, then the forced marks that end a line in some families.
        forced: [N] int64, the token forced at a position or -1; None when nothing is forced.
        marks: how many of the columns are forced line marks, not picture codes.
    """

    rows: int
    columns: int
    forced: Tensor | None = None
    marks: int = 0

    @classmethod
    def with_line_ends(cls, rows: int, picture_columns: int, mark: int) -> Grid:
        """Every row ends with the token ``mark``, forced from this table whatever the target's logits say."""
        forced = torch.full((rows, picture_columns + 1), -1)
        forced[:, -1] = mark
        return cls(rows, picture_columns + 1, forced.flatten(), marks=1)

    @property
    def tokens(self) -> int:
        return self.rows * self.columns

    def picture(self, values: Tensor) -> Tensor:
        """[..., N] values of all tokens -> [..., rows, columns - marks], the line marks left out."""
        return values.unflatten(-1, (self.rows, self.columns))[..., : self.columns - self.marks]


@dataclass
class PromptBatch:
    """Left-padded prompts of B images.

    Args:
        ids: [B, S] int64.
        mask: [B, S] int64, 0 on padding.
        unconditional_ids: [B, S] ids of the guidance rows, or None without guidance.
        unconditional_mask: [B, S].
    """

    ids: Tensor
    mask: Tensor
    unconditional_ids: Tensor | None = None
    unconditional_mask: Tensor | None = None

    @property
    def images(self) -> int:
        return self.ids.shape[0]

    def rows(self) -> tuple[Tensor, Tensor]:
        """[R, S] ids and mask, rows ordered all conditional, then all unconditional."""
        if self.unconditional_ids is None:
            return self.ids, self.mask
        return torch.cat([self.ids, self.unconditional_ids]), torch.cat([self.mask, self.unconditional_mask])


class TargetSession(ABC):
    """A target ``model`` with its cache, decoding one batch."""

    def __init__(self, model, images: int, rows: int):
        self.model, self.images, self.rows = model, images, rows

    def prefill(self) -> Tensor:
        """Run the prompt; [R, 1, V] logits of the first image token."""
        return self._prefill()

    @abstractmethod
    def reach(self, longest: int, count: int, bucket: int = LENGTH_BUCKET) -> int:
        """Called by the host before :meth:`step`: how far attention has to read.

        Args:
            longest: largest number of committed tokens of an image, at most.
            count: T, tokens of the forward, at most.
            bucket: the forward has one shape as long as attention reads no more than a multiple of this.

        Returns:
            what the shape of the forward depends on besides T.
        """

    def step(
        self, tokens: Tensor, committed: Tensor, longest: int | None = None, tree: TreeShape | None = None
    ) -> Tensor:
        """Verify a window.

        Args:
            tokens: [B, T] last committed token, then the drafts, then the other nodes of a tree.
            committed: [B] int64 number of committed tokens; ``tokens[:, 0]`` sits at ``committed - 1``.
            longest: largest entry of ``committed``, known to the host; None: :meth:`reach` was called.
            tree: which token descends from which; None: each from the one before.

        Returns:
            [R, T, V] logits; entry t is the law after ``tokens[:, t]``.
        """
        if longest is not None:
            self.reach(longest, tokens.shape[1])
        return self._step(tokens, committed, tree)

    def adopt(self, committed: Tensor, path: Tensor) -> None:
        """Put the tokens ``path`` [B, D] of the last forward in the places after its ``committed`` [B] tokens.

        Only a tree needs this: the drafts of a window are where they belong.
        """
        copies = self.rows // self.images
        self._adopt(committed.repeat(copies), path.repeat(copies, 1))

    def keep(self, images: Tensor) -> None:
        """Drop all images but ``images`` (int64 indices)."""
        rows = torch.cat([images, images + self.images]) if self.guided else images
        self.images, self.rows = len(images), len(rows)
        self._keep(rows)

    def run_prompt_only(self) -> None:
        """Called before :meth:`prefill` of images that another session will :meth:`admit`: needs no room for codes."""
        return

    def has_room_for(self, newcomers: TargetSession) -> bool:
        """Whether images of that session, whose prompts may be longer, can be decoded in this one."""
        return newcomers.guided == self.guided

    def admit(self, slots: Tensor, newcomers: TargetSession) -> None:
        """Put the images of another session, of which only the prompt was run, in the place of those in ``slots``.

        Args:
            slots: [K] int64 images of this session; nothing moves in storage.
            newcomers: K images, for which there is room.
        """
        self._admit(torch.cat([slots, slots + self.images]) if self.guided else slots, newcomers)

    @property
    def guided(self) -> bool:
        """Whether there are unconditional rows."""
        return self.rows > self.images

    @abstractmethod
    def _prefill(self) -> Tensor: ...

    @abstractmethod
    def _step(self, tokens: Tensor, committed: Tensor, tree: TreeShape | None) -> Tensor: ...

    @abstractmethod
    def _adopt(self, committed: Tensor, path: Tensor) -> None: ...

    @abstractmethod
    def _keep(self, rows: Tensor) -> None: ...

    @abstractmethod
    def _admit(self, rows: Tensor, newcomers: TargetSession) -> None: ...


class TargetAdapter(ABC):
    """Connects one model family to the loop.

    Args:
        model: the target.
        size: (height, width) in pixels of the picture to draw; None is the family's usual one.

    Attributes:
        family: name of the family.
        vocabulary: V, number of codes: the image codes the head is restricted to, then the family's forced marks.
        default_guidance_scale, default_temperature, default_top_k, default_top_p: the published settings of the family.
        default_negative_prompt: guidance is against this text; None: against the rows of :meth:`guidance_rows`.
        prompt_suffix: what the published script appends to every prompt.
        needs_tokenizer: False where a prompt is no text.
        full_precision: full names of the modules that weights of few bits would spoil: what gives the logits of codes,
            what embeds codes, what makes pixels of them.

    Raises:
        ValueError: a size the model can not draw; those it can are named.
    """

    family: str
    default_guidance_scale: float = 1.0
    default_temperature: float = 1.0
    default_top_k: int = 0
    default_top_p: float = 1.0
    default_negative_prompt: str | None = None
    prompt_suffix: str = ""
    needs_tokenizer: bool = True
    full_precision: tuple[str, ...] = ()

    def __init__(self, model, size: tuple[int, int] | None = None):
        self.model = model
        sizes = self.sizes
        self.image_size = sizes[0] if size is None else size
        if self.image_size not in sizes:
            offered = ", ".join(f"{width}x{height}" for height, width in sizes)
            raise ValueError(
                f"this model draws {offered} pixels (width x height), got width={size[1]}, height={size[0]}"
                + ("; leave them out" if len(sizes) == 1 else "")
            )

    @property
    @abstractmethod
    def vocabulary(self) -> int: ...

    @property
    @abstractmethod
    def grid(self) -> Grid: ...

    @property
    @abstractmethod
    def sizes(self) -> list[tuple[int, int]]:
        """Every (height, width) in pixels the model can draw, the usual one first."""

    @property
    def codebook(self) -> Tensor:
        """[codes, D] float32 vector of every image code, as the picture decoder sees it; forced marks have none.

        Raises:
            ValueError: a family whose codes have no vectors.
        """
        raise ValueError(f"{self.family} codes have no vectors; choose a rule that does not compare codes")

    @abstractmethod
    def open(self, prompt: PromptBatch, window: int) -> TargetSession:
        """Start a session with room for the whole image and ``window`` tokens per forward."""

    @property
    def prompt_room(self) -> int:
        """Largest number of prompt tokens that fits beside the image."""
        return 10**9

    @property
    def prompt_vocabulary(self) -> int | None:
        """Number of ids a prompt may use, None if unknown."""
        return getattr(getattr(self.model.config, "text_config", self.model.config), "vocab_size", None)

    @abstractmethod
    def decode(self, tokens: Tensor) -> Tensor:
        """[B, N] tokens -> [B, 3, H, W] pixels, about [-1, 1]."""

    def decode_rows(self, tokens: Tensor, rows: int) -> Tensor:
        """Pixels [B, 3, H rows / all rows, W] of the first ``rows`` code rows of [B, N] tokens, for previews.

        Near the lower edge they may differ from those of the whole picture. A family that can decode a part of the grid
        overrides this, which decodes everything.
        """
        return self.decode(tokens)[:, :, : self.image_size[0] * rows // self.grid.rows]

    def prompt_ids(self, prompt: str, tokenizer) -> list[int]:
        """Token ids of a prompt in the family's format, up to the position where the picture begins."""
        return tokenizer(self.format_prompt(prompt, tokenizer), verbose=False).input_ids

    def guidance_rows(self, ids: Tensor, mask: Tensor, tokenizer) -> tuple[Tensor, Tensor]:
        """[B, S] ids and mask of the unconditional rows for prompts [B, S]; a family may use a shorter context."""
        return self.unconditional(ids, tokenizer), mask

    @contextmanager
    def float32_decoder(self):
        """Within this context :meth:`decode` computes in float32."""
        yield


def attention_mask(config, visible: Tensor, dtype: torch.dtype) -> Tensor:
    """The explicit mask in the form the attention of ``config`` reads: bool, or for eager attention 0 and -max."""
    if config._attn_implementation != "eager":
        return visible
    return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)


def _round_up(length: int, bucket: int = LENGTH_BUCKET) -> int:
    return -(-length // bucket) * bucket


class CachedSession(TargetSession):
    """Session of a transformers decoder: explicit mask and positions, per-row cache slots.

    ``adapter`` provides ``embed_prompt(ids)``, ``embed_codes(tokens)`` and ``forward(embeds, mask, positions, cache)``.
    """

    def __init__(self, adapter, prompt: PromptBatch, layers: int, window: int):
        self.ids, mask = prompt.rows()
        super().__init__(adapter.model, prompt.images, len(self.ids))
        self.adapter, self.prompt_length, self.device = adapter, self.ids.shape[1], self.ids.device
        # [R]: a session may hold images with prompts of several lengths, and a traced pass takes numbers for constants
        self.last_of_prompt = torch.full((self.rows,), self.prompt_length - 1, device=self.device)
        self.limit = _round_up(self.prompt_length)  # cache slots that attention reads
        self.padding = self.prompt_length - mask.sum(-1)
        # attention never reads the very last slot: "all of it" would be a case of its own for a traced pass
        self.tokens = adapter.grid.tokens + window
        self.cache = RowCache(layers, _round_up(self.prompt_length + self.tokens) + 1)

    def _prefill(self) -> Tensor:
        start = torch.zeros_like(self.padding)
        hidden = self._forward(self.adapter.embed_prompt(self.ids), start)
        return self._logits(hidden[:, -1:])

    def reach(self, longest: int, count: int, bucket: int = LENGTH_BUCKET) -> int:
        limit = _round_up(self.prompt_length + longest - 1 + count, bucket)
        self.limit = min(limit, self.cache.capacity - 1)
        return self.limit

    def _step(self, tokens: Tensor, committed: Tensor, tree: TreeShape | None) -> Tensor:
        copies = self.rows // self.images
        embeds = self.adapter.embed_codes(tokens).repeat(copies, 1, 1)
        start = self.last_of_prompt + committed.repeat(copies)
        return self._logits(self._forward(embeds, start, tree))

    def _adopt(self, committed: Tensor, path: Tensor) -> None:
        last = (self.last_of_prompt + committed)[:, None]
        self.cache.move(last + path, last + 1 + torch.arange(path.shape[1], device=path.device))

    def _logits(self, hidden: Tensor) -> Tensor:
        """On the device of the prompt, also where the model is split over several."""
        return self.adapter.logits(hidden).to(self.device)

    def _forward(self, embeds: Tensor, start: Tensor, tree: TreeShape | None = None) -> Tensor:
        """Run the decoder on [R, T, D] embeddings written at slots ``start[r] + t``."""
        slots = start[:, None] + count_up(embeds.shape[1], embeds.device)
        keys = count_up(self.limit, embeds.device)
        # padding attends to itself: an empty row would be NaN in every layer
        first = self.padding[:, None].minimum(slots)
        visible = (keys <= slots[..., None]) & (keys >= first[..., None])
        place = slots
        if tree is not None:
            place, newer = start[:, None] + tree.place, keys - start[:, None]  # [R, keys] token of this forward
            related = tree.visible[:, newer.clamp(0, len(tree.place) - 1)].transpose(0, 1)
            visible &= related | (newer < 0)[:, None]
        self.cache.place(slots, self.limit)
        return self.adapter.forward(embeds, visible[:, None], self._positions(place), self.cache)

    def _positions(self, slots: Tensor) -> Tensor:
        """[R, T] position ids of the slots tokens belong to: real tokens count from 0."""
        return (slots - self.padding[:, None]).clamp(min=0)

    def _keep(self, rows: Tensor) -> None:
        self.padding, self.last_of_prompt = self.padding[rows], self.last_of_prompt[rows]
        self.cache.keep_rows(rows)

    def run_prompt_only(self) -> None:
        self.cache = RowCache(len(self.cache.layers), _round_up(self.prompt_length) + 1)

    def has_room_for(self, newcomers: TargetSession) -> bool:
        return super().has_room_for(newcomers) and newcomers.prompt_length + self.tokens < self.cache.capacity

    def _admit(self, rows: Tensor, newcomers: CachedSession) -> None:
        self.prompt_length = max(self.prompt_length, newcomers.prompt_length)
        admit_rows(self.padding, rows, newcomers.padding)
        admit_rows(self.last_of_prompt, rows, newcomers.last_of_prompt)
        self.cache.admit(rows, newcomers.cache, newcomers.prompt_length)
