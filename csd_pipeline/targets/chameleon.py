"""Chameleon and Anole over transformers' own classes: 32 x 32 codes in raster order, nothing forced.

Guidance and prompt as in the published inference code: a turn of text, the end-of-turn token, begin of image; the
unconditional row is BOS and begin of image alone (a context of its own length, with positions from 0).
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .base import Grid
from .codes_in_vocabulary import CodesInVocabulary
from .language_model import LanguageModelAdapter, padded_row
from .weights import weight_of

# names in the published tokenizer, which gave reserved entries their meaning; and their ids where a config has no map
BEGIN_IMAGE, END_IMAGE, END_OF_TURN = "<racm3:break>", "<eoss>", "<reserved08706>"
_PUBLISHED_IDS = {BEGIN_IMAGE: 8197, END_IMAGE: 8196} | {f"<reserved{n:05d}>": n + 4 for n in range(8192, 65532)}
_FIRST_CODE = 4


class ChameleonAdapter(LanguageModelAdapter):
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
        super().__init__(model, size, decoder=model.model, vq=model.model.vqmodel)

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
    def sizes(self) -> list[tuple[int, int]]:
        side = self.model.config.vq_config.resolution
        return [(side, side)]

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.image_size[0] // self.patch, self.image_size[1] // self.patch)

    @property
    def codebook(self) -> Tensor:
        """[K, D] vectors of the image codes."""
        return weight_of(self.vq.quantize.embedding)

    def decode(self, tokens: Tensor) -> Tensor:
        return self.model.decode_codes(self.grid.picture(tokens))

    # --- prompt -----------------------------------------------------------------------------------------------------

    def prompt_ids(self, prompt: str, tokenizer) -> list[int]:
        """Built from ids: not every published tokenizer reads the reserved names back from text."""
        prompt = self.without_control_tokens(prompt, tokenizer, {BEGIN_IMAGE, END_IMAGE, END_OF_TURN, "<image>"})
        text = tokenizer(self.caption(prompt), verbose=False).input_ids
        return text + [self.token_id(END_OF_TURN), *self.picture_start()]

    def caption(self, prompt: str) -> str:
        """The text of the turn."""
        return prompt

    def picture_start(self) -> list[int]:
        """Vocabulary ids between the text and the first code."""
        return [self.token_id(BEGIN_IMAGE)]

    def guidance_rows(self, ids: Tensor, mask: Tensor, tokenizer) -> tuple[Tensor, Tensor]:
        """BOS and begin of image, left-padded to the prompts' length."""
        return padded_row(ids, [tokenizer.bos_token_id, *self.picture_start()], tokenizer.pad_token_id)
