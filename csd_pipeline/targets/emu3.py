"""Emu3-Gen over transformers' own classes (arXiv 2409.18869): rows of codes, each ended by a forced line token.

The prompt ends with begin of image, the grid ("90*90", rows first) and the image token. Guidance is against a negative
prompt in the same format. The three tokens after the last row (end of frame, of image, of text) decide nothing and are
left out.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .base import Grid
from .codes_in_vocabulary import CodesInVocabulary
from .language_model import LanguageModelAdapter
from .weights import weight_of

_BEGIN_IMAGE, _IMAGE, _LINE_END = "<|image start|>", "<|image token|>", "<|extra_200|>"
_AREA = 720 * 720  # of the published image processor
_RATIOS = ((1, 1), (4, 3), (3, 4), (3, 2), (2, 3), (16, 9), (9, 16), (2, 1), (1, 2))
_CODE_NAME = "<|visual token {:06d}|>"


class Emu3Adapter(LanguageModelAdapter):
    """Adapter of ``transformers.Emu3ForConditionalGeneration``; the settings are those of the published script."""

    family = "emu3"
    default_guidance_scale = 3.0
    default_top_k = 2048
    default_negative_prompt = (
        "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, "
        "worst quality, low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
    )
    prompt_suffix = " masterpiece, film grained, best quality."

    def __init__(self, model, size: tuple[int, int] | None = None):
        super().__init__(model, size, decoder=model.model.text_model, vq=model.model.vqmodel)

    @cached_property
    def vocabulary_codes(self) -> CodesInVocabulary:
        names = self.model.config.vocabulary_map
        codes = [names[_CODE_NAME.format(code)] for code in range(self.model.config.vq_config.codebook_size)]
        return CodesInVocabulary(torch.tensor(codes), marks=(names[_LINE_END],))

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """The published area in several shapes, rounded to whole codes as the published processor does."""
        area = getattr(self.model.config, "image_area", None) or _AREA
        sizes = []
        for width, height in _RATIOS:
            scale = (area / (width * height)) ** 0.5 / self.patch
            sizes.append((round(height * scale) * self.patch, round(width * scale) * self.patch))
        return sizes

    @cached_property
    def grid(self) -> Grid:
        rows, columns = (pixels // self.patch for pixels in self.image_size)
        return Grid.with_line_ends(rows, columns, mark=len(self.vocabulary_codes.codes))

    @property
    def codebook(self) -> Tensor:
        """[K, D] vectors of the image codes."""
        return weight_of(self.vq.quantize.embedding)

    def decode(self, tokens: Tensor) -> Tensor:
        return self.vq.decode(self.grid.picture(tokens))

    # --- prompt -----------------------------------------------------------------------------------------------------

    def prompt_ids(self, prompt: str, tokenizer) -> list[int]:
        names = self.model.config.vocabulary_map
        prompt = self.without_control_tokens(prompt, tokenizer, {_BEGIN_IMAGE, _IMAGE, _LINE_END, "<|image end|>"})
        grid = f"{self.grid.rows}*{self.grid.columns - self.grid.marks}"
        text, size = (tokenizer(part, add_special_tokens=False, verbose=False).input_ids for part in (prompt, grid))
        return [tokenizer.bos_token_id, *text, names[_BEGIN_IMAGE], *size, names[_IMAGE]]
