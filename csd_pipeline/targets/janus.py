"""Janus and Janus-Pro over transformers' own classes (JanusForConditionalGeneration).

Rows and prompt, as in transformers' image generation: all conditional rows first, then all unconditional ones; the
unconditional row is the prompt with every token but BOS and BOI replaced by PAD, same length, padding attended.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import normalize

from csd_pipeline.decoding.cache import RowCache, cache_argument

from .base import CachedSession, Grid, PromptBatch, TargetAdapter
from .weights import weight_of

_logger = logging.getLogger(__name__)
_USER, _ASSISTANT = "<|User|>", "<|Assistant|>"


class JanusAdapter(TargetAdapter):
    """Adapter of ``transformers.JanusForConditionalGeneration`` (arXiv 2410.13848, 2501.17811)."""

    family = "janus"
    default_guidance_scale = 5.0
    full_precision = (
        "lm_head",
        "model.generation_embeddings",
        "model.generation_aligner",
        "model.generation_head",
        "model.vqmodel",
        "model.vision_model",
        "model.aligner",
    )

    def __init__(self, model, size: tuple[int, int] | None = None):
        super().__init__(model, size)
        self.language_model = model.model.language_model
        self.cache_argument = cache_argument(self.language_model)
        attention = self.language_model.config._attn_implementation
        if attention not in ("sdpa", "eager"):
            model.set_attn_implementation("sdpa")
            _logger.warning(  # once per model: from now on it says "sdpa"
                "the model's attention was switched from %r to 'sdpa': every row has a mask of its own (its padding, "
                "its number of committed tokens), which %r does not take; load the model with "
                "attn_implementation='sdpa' (or 'eager') to choose yourself",
                attention,
                attention,
            )

    @property
    def vocabulary(self) -> int:
        return self.model.config.vq_config.num_embeddings

    @property
    def grid(self) -> Grid:
        side = self.model.config.vision_config.image_size // self.model.config.vision_config.patch_size
        return Grid(side, side)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        side = self.grid.rows * 2 ** (len(self.model.config.vq_config.channel_multiplier) - 1)
        return [(side, side)]

    @property
    def codebook(self) -> Tensor:
        entries = weight_of(self.model.model.vqmodel.quantize.embedding)
        return torch.nn.functional.normalize(entries.float(), dim=-1)  # as in the quantizer's get_codebook_entry

    def open(self, prompt: PromptBatch, window: int) -> CachedSession:
        return CachedSession(self, prompt, self.model.config.text_config.num_hidden_layers, window)

    def embed_prompt(self, ids: Tensor) -> Tensor:
        return self.language_model.get_input_embeddings()(ids)

    def embed_codes(self, tokens: Tensor) -> Tensor:
        return self.model.prepare_embeddings_for_image_generation(tokens)

    def forward(self, embeds: Tensor, visible: Tensor, positions: Tensor, cache: RowCache) -> Tensor:
        """[R, T, D] embeddings -> [R, T, D] hidden states; ``visible`` [R, 1, T, keys] bool."""
        if self.language_model.config._attn_implementation == "eager":
            visible = torch.zeros_like(visible, dtype=embeds.dtype).masked_fill_(
                ~visible, torch.finfo(embeds.dtype).min
            )
        return self.language_model(
            inputs_embeds=embeds,
            attention_mask=visible,
            position_ids=positions,
            use_cache=True,
            **{self.cache_argument: cache},
        ).last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.model.generation_head(hidden)

    @property
    def prompt_room(self) -> int:
        return self.language_model.config.max_position_embeddings - self.grid.tokens

    def decode(self, tokens: Tensor) -> Tensor:
        return self.model.model.vqmodel.decode(tokens)

    def decode_rows(self, tokens: Tensor, rows: int) -> Tensor:
        decoder = self.model.model.vqmodel
        codes = normalize(decoder.quantize.embedding(tokens[:, : rows * self.grid.columns]), dim=-1)
        grid = codes.unflatten(1, (rows, self.grid.columns)).permute(0, 3, 1, 2).contiguous()
        return decoder.decoder(decoder.post_quant_conv(grid))

    @contextmanager
    def float32_decoder(self):
        decoder = self.model.model.vqmodel
        dtype = decoder.dtype
        decoder.float()
        try:
            yield
        finally:
            decoder.to(dtype)

    # --- prompt -----------------------------------------------------------------------------------------------------

    def format_prompt(self, prompt: str, tokenizer) -> str:
        """The published single-turn image prompt; a tokenizer without Janus' role tokens gets the bare caption."""
        control = {self.boi_token(tokenizer), _USER, _ASSISTANT, *tokenizer.all_special_tokens}
        for token in sorted(control, key=len, reverse=True):  # a prompt may quote control tokens, it may not use them
            prompt = prompt.replace(token, " ")
        if _USER in tokenizer.get_vocab():
            prompt = f"{_USER}: {prompt}\n\n{_ASSISTANT}:"
        return prompt + self.boi_token(tokenizer)

    @staticmethod
    def boi_token(tokenizer) -> str:
        """Text of the begin-of-image token."""
        token = getattr(tokenizer, "boi_token", None) or "<begin_of_image>"
        if token not in tokenizer.get_vocab():
            raise ValueError(
                f"the tokenizer has no begin-of-image token {token!r}; use the one published with the model"
            )
        return token

    def unconditional(self, ids: Tensor, tokenizer) -> Tensor:
        """[B, S] guidance rows for prompts [B, S]: everything but BOS and BOI becomes PAD."""
        if tokenizer.pad_token_id is None:
            raise ValueError(
                "the tokenizer has no pad_token, which Janus' guidance rows are made of; set tokenizer.pad_token"
            )
        boi = tokenizer.convert_tokens_to_ids(self.boi_token(tokenizer))
        keep = (ids == tokenizer.bos_token_id) | (ids == boi)
        return torch.where(keep, ids, tokenizer.pad_token_id)
