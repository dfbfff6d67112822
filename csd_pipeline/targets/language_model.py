"""Families that write a picture with entries of a language model's vocabulary: what their adapters share."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn

from csd_pipeline.decoding.cache import RowCache, cache_argument
from csd_pipeline.decoding.indexing import where_it_was

from .base import CachedSession, PromptBatch, TargetAdapter, attention_mask
from .codes_in_vocabulary import CodesInVocabulary


class LanguageModelAdapter(TargetAdapter):
    """Runs the decoder of a language model and the rows of its head that belong to image codes.

    Args:
        model: the target.
        size: (height, width) in pixels.
        decoder: transformers' decoder without a head; its ``config`` has the number of layers and the positions.
        vq: the module that holds the pixel decoder.
    """

    full_precision = ("lm_head", "model.vqmodel")

    def __init__(self, model, size: tuple[int, int] | None, decoder: nn.Module, vq: nn.Module):
        super().__init__(model, size)
        self.decoder, self.vq = decoder, vq
        self.head: tuple[Tensor | None, ...] = ()  # of the codes, from the first session on
        self.cache_argument = cache_argument(decoder)

    @cached_property
    def vocabulary_codes(self) -> CodesInVocabulary:
        """Vocabulary ids of the image codes, and of the family's line marks."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int:
        return len(self.vocabulary_codes)

    @property
    def patch(self) -> int:
        """Pixels per code, in both directions."""
        return 2 ** (len(self.model.config.vq_config.channel_multiplier) - 1)

    def open(self, prompt: PromptBatch, window: int) -> CachedSession:
        rows = self.vocabulary_codes.head_rows(self.model.lm_head)
        device = prompt.ids.device  # an offloaded head lies elsewhere
        self._set_head(tuple(None if row is None else row.to(device) for row in rows))
        return CachedSession(self, prompt, self.decoder.config.num_hidden_layers, window)

    @torch.no_grad()
    def _set_head(self, rows: tuple[Tensor, Tensor | None]) -> None:
        """Weight and bias of the codes' rows; rows of the same shape go where earlier ones are, as captured passes of
        earlier sessions read them there.
        """
        kept = self.head or (None, None)
        self.head = tuple(None if new is None else where_it_was(old, new) for old, new in zip(kept, rows, strict=True))

    def embed_prompt(self, ids: Tensor) -> Tensor:
        return self.decoder.embed_tokens(ids)

    def embed_codes(self, tokens: Tensor) -> Tensor:
        return self.decoder.embed_tokens(self.vocabulary_codes.vocabulary_ids(tokens))

    def forward(self, embeds: Tensor, visible: Tensor, positions: Tensor, cache: RowCache) -> Tensor:
        """[R, T, D] embeddings -> [R, T, D] hidden states; ``visible`` [R, 1, T, keys] bool."""
        return self.decoder(
            inputs_embeds=embeds,
            attention_mask=attention_mask(self.decoder.config, visible, embeds.dtype),
            position_ids=positions,
            use_cache=True,
            **{self.cache_argument: cache},
        ).last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, T, K] of the image codes alone: a small part of the vocabulary."""
        return nn.functional.linear(hidden.to(self.head[0].device), *self.head)

    @property
    def prompt_room(self) -> int:
        return self.decoder.config.max_position_embeddings - self.grid.tokens

    @contextmanager
    def float32_decoder(self):
        dtype = self.vq.dtype
        self.vq.float()
        try:
            yield
        finally:
            self.vq.to(dtype)

    @staticmethod
    def without_control_tokens(prompt: str, tokenizer, names: set[str]) -> str:
        """The prompt with its control tokens blanked: a prompt may quote them, it may not use them."""
        for token in sorted({*tokenizer.all_special_tokens, *names} - {""}, key=len, reverse=True):
            prompt = prompt.replace(token, " ")
        return prompt


def padded_row(ids: Tensor, context: list[int], pad: int) -> tuple[Tensor, Tensor]:
    """``context`` in every row, left-padded to the shape of ``ids`` [B, S]; ids and mask."""
    rows, mask = torch.full_like(ids, pad), torch.zeros_like(ids)
    rows[:, -len(context) :] = torch.tensor(context, device=ids.device)
    mask[:, -len(context) :] = 1
    return rows, mask
