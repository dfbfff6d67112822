"""LlamaGen, class- and text-conditional (arXiv 2406.06525): a square of codes in raster order, nothing forced.

The condition fills the first slots: the embedding of a class, or T5 features of the text, left-padded. Guidance rows
hold the embedding of "no class", or the learnt features that stand for no text, under the mask of the prompt.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor

from csd_pipeline.decoding.cache import RowCache

from .base import CachedSession, Grid, PromptBatch, TargetAdapter
from .weights import weight_of


class LlamaGenSession(CachedSession):
    """Positions count codes, not tokens; the condition is embedded by kind."""

    def _prefill(self) -> Tensor:
        start = torch.zeros_like(self.padding)
        mask = torch.arange(self.prompt_length, device=self.ids.device) >= self.padding[:, None]
        hidden = self._forward(self.adapter.embed_condition(self.ids, mask), start)
        return self._logits(hidden[:, -1:])

    def _positions(self, slots: Tensor) -> Tensor:
        return slots - (self.last_of_prompt[:, None] + 1)


class LlamaGenAdapter(TargetAdapter):
    """Adapter of :class:`LlamaGenTarget`; guidance, top-k and prompt handling of the published sampling scripts.

    The scripts' cleaning of web captions (addresses, mark-up) is reduced to lower case and outer spaces.
    """

    family = "llamagen"
    full_precision = ("output", "cls_embedding", "vq")

    def __init__(self, model, size: tuple[int, int] | None = None):
        super().__init__(model, size)
        self.of_classes = model.config.condition == "class"
        self.default_guidance_scale = 4.0 if self.of_classes else 7.5
        self.default_top_k = 2000 if self.of_classes else 1000

    @property
    def needs_tokenizer(self) -> bool:
        """A class is a number."""
        return not self.of_classes

    @property
    def vocabulary(self) -> int:
        return self.model.config.vocabulary

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.model.config.grid_side, self.model.config.grid_side)

    @property
    def patch(self) -> int:
        """Pixels per code, in both directions."""
        return 2 ** (len(self.model.vq.config.channel_multiplier) - 1)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        side = self.model.config.grid_side * self.patch
        return [(side, side)]

    @property
    def codebook(self) -> Tensor:
        """[K, D] vectors of the image codes, normalised as the decoder reads them."""
        return torch.nn.functional.normalize(weight_of(self.model.vq.quantize.embedding), dim=-1)

    def open(self, prompt: PromptBatch, window: int) -> LlamaGenSession:
        return LlamaGenSession(self, prompt, self.model.config.num_layers, window)

    def embed_condition(self, ids: Tensor, mask: Tensor) -> Tensor:
        """[R, S] ids and bool mask -> [R, S, D]: classes, or T5 features; rows of padding ids alone mean no text."""
        if self.of_classes:
            return self.model.cls_embedding(ids)
        features = self.model.text_encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        features = features * mask[..., None].to(features.dtype)  # padded slots are blank in the published script too
        blank = self.model.cls_embedding.uncond_embedding[-ids.shape[1] :].to(features.dtype)
        nothing = (ids == self.model.text_encoder.config.pad_token_id).all(-1)
        return self.model.cls_embedding(torch.where(nothing[:, None, None], blank, features))

    def embed_codes(self, tokens: Tensor) -> Tensor:
        return self.model.tok_embeddings(tokens)

    def forward(self, embeds: Tensor, visible: Tensor, positions: Tensor, cache: RowCache) -> Tensor:
        return self.model.hidden_states(embeds, visible, positions, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.output(hidden)

    @property
    def prompt_room(self) -> int:
        return self.model.config.condition_slots

    @property
    def prompt_vocabulary(self) -> int:
        return self.model.config.classes + 1 if self.of_classes else self.model.text_encoder.config.vocab_size

    def decode(self, tokens: Tensor) -> Tensor:
        return self.model.vq.decode(tokens)

    @contextmanager
    def float32_decoder(self):
        dtype = self.model.vq.dtype
        self.model.vq.float()
        try:
            yield
        finally:
            self.model.vq.to(dtype)

    # --- prompt -----------------------------------------------------------------------------------------------------

    def prompt_ids(self, prompt: str, tokenizer) -> list[int]:
        if not self.of_classes:
            return tokenizer(prompt.lower().strip(), verbose=False).input_ids
        label = prompt.lower().removeprefix("class").strip()
        if not label.isdecimal() or int(label) >= self.model.config.classes:
            raise ValueError(
                f"this LlamaGen draws classes: the prompt must be a number from 0 to {self.model.config.classes - 1} "
                f"(like 'class 207'), got {prompt!r}"
            )
        return [int(label)]

    def guidance_rows(self, ids: Tensor, mask: Tensor, tokenizer) -> tuple[Tensor, Tensor]:
        if self.of_classes:
            return torch.full_like(ids, self.model.config.classes), mask
        return torch.full_like(ids, self.model.text_encoder.config.pad_token_id), mask
