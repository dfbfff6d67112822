"""Chameleon and Anole over transformers' own classes: 32 x 32 codes in raster order, nothing forced.

Guidance and prompt as in the published inference code: a turn of text, the end-of-turn token, begin of image; the
unconditional row is BOS and begin of image alone (a context of its own length, with positions from 0).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor

from csd_pipeline.decoding.cache import RowCache, cache_argument

from .base import CachedSession, Grid, PromptBatch, TargetAdapter, attention_mask
from .codes_in_vocabulary import CodesInVocabulary

# names in the published tokenizer, which gave reserved entries their meaning; and their ids where a config has no map
BEGIN_IMAGE, END_IMAGE, END_OF_TURN = "<racm3:break>", "<eoss>", "<reserved08706>"
_PUBLISHED_IDS = {BEGIN_IMAGE: 8197, END_IMAGE: 8196} | {f"<reserved{n:05d}>": n + 4 for n in range(8192, 65532)}
_FIRST_CODE = 4


class ChameleonAdapter(TargetAdapter):
    """Adapter of Chameleon-like models (arXiv 2405.09818; Anole arXiv 2407.06135) with a pixel decoder."""

    family = "chameleon"
    default_guidance_scale = 3.0
    default_temperature = 0.7
    default_top_p = 0.9

    def __init__(self, model, size: tuple[int, int] | None = None):
        if not hasattr(model, "decode_codes"):
            raise ValueError(
                f"{type(model).__name__} has no pixel decoder, so its codes can not become a picture; load the "
                "checkpoint with CSDAutoregressivePipeline.from_pretrained, or `csd convert` it first"
            )
        super().__init__(model, size)
        self.decoder = model.model
        self.cache_argument = cache_argument(self.decoder)

    @cached_property
    def vocabulary_codes(self) -> CodesInVocabulary:
        return CodesInVocabulary(self._code_ids())

    def _code_ids(self) -> Tensor:
        count = self.model.config.vq_config.num_embeddings
        if not self.model.config.vocabulary_map:
            return torch.arange(_FIRST_CODE, _FIRST_CODE + count)
        ids = self.model.model.vocabulary_mapping.img2bpe
        return torch.tensor([ids[code] for code in range(count)])

    def token_id(self, name: str) -> int:
        """Vocabulary id of a named token."""
        return (self.model.config.vocabulary_map or _PUBLISHED_IDS).get(name, _PUBLISHED_IDS.get(name))

    @property
    def vocabulary(self) -> int:
        return len(self.vocabulary_codes)

    @property
    def patch(self) -> int:
        """Pixels per code, in both directions."""
        return 2 ** (len(self.model.config.vq_config.channel_multiplier) - 1)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        side = self.model.config.vq_config.resolution
        return [(side, side)]

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.image_size[0] // self.patch, self.image_size[1] // self.patch)

    @property
    def codebook(self) -> Tensor:
        return self.model.model.vqmodel.quantize.embedding.weight

    def open(self, prompt: PromptBatch, window: int) -> CachedSession:
        self.head = self.vocabulary_codes.head_rows(self.model.lm_head)
        return CachedSession(self, prompt, self.model.config.num_hidden_layers, window)

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
        """Only the rows of image codes: 8,192 of 65,536."""
        return torch.nn.functional.linear(hidden, *self.head)

    @property
    def prompt_room(self) -> int:
        return self.model.config.max_position_embeddings - self.grid.tokens

    def decode(self, tokens: Tensor) -> Tensor:
        return self.model.decode_codes(self.grid.picture(tokens))

    @contextmanager
    def float32_decoder(self):
        vq = self.model.model.vqmodel
        dtype = vq.dtype
        vq.float()
        try:
            yield
        finally:
            vq.to(dtype)

    # --- prompt -----------------------------------------------------------------------------------------------------

    def prompt_ids(self, prompt: str, tokenizer) -> list[int]:
        """Built from ids: not every published tokenizer reads the reserved names back from text."""
        text = tokenizer(self.caption(self.plain_text(prompt, tokenizer)), verbose=False).input_ids
        return text + [self.token_id(END_OF_TURN), *self.picture_start()]

    def caption(self, prompt: str) -> str:
        return prompt

    def picture_start(self) -> list[int]:
        """Vocabulary ids between the text and the first code."""
        return [self.token_id(BEGIN_IMAGE)]

    @staticmethod
    def plain_text(prompt: str, tokenizer) -> str:
        """The prompt without control tokens: it may quote them, it may not use them."""
        control = {*tokenizer.all_special_tokens, BEGIN_IMAGE, END_IMAGE, END_OF_TURN, "<image>"}
        for token in sorted(control - {""}, key=len, reverse=True):
            prompt = prompt.replace(token, " ")
        return prompt

    def guidance_rows(self, ids: Tensor, mask: Tensor, tokenizer) -> tuple[Tensor, Tensor]:
        """BOS and begin of image, left-padded to the prompts' length."""
        return self._short_rows(ids, [tokenizer.bos_token_id, self.token_id(BEGIN_IMAGE)], tokenizer)

    @staticmethod
    def _short_rows(ids: Tensor, context: list[int], tokenizer) -> tuple[Tensor, Tensor]:
        rows = torch.full_like(ids, tokenizer.pad_token_id)
        rows[:, -len(context) :] = torch.tensor(context, device=ids.device)
        mask = torch.zeros_like(ids)
        mask[:, -len(context) :] = 1
        return rows, mask
