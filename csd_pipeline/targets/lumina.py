"""Lumina-mGPT: Chameleon with pictures of many sizes (arXiv 2408.02657).

The prompt names the size, and after begin of image two tokens do: height, then width, in steps of 32 pixels. They are
known beforehand, so they belong to the prompt here. Every row of codes ends with a line token, forced from a table. The
unconditional row starts at begin of image.
"""

from __future__ import annotations

import re
from functools import cached_property

from torch import Tensor

from .base import Grid
from .chameleon import BEGIN_IMAGE, ChameleonAdapter
from .codes_in_vocabulary import CodesInVocabulary
from .language_model import padded_row

_LINE_END = "<reserved08799>"
_SIZE_STEP = 32
_SIZE_NAME = 8800  # "<reserved08800>" and n steps more
_LONGEST_RATIO = 4.0
_TRAINED_SIDES = (768, 512, 1024)  # one checkpoint each; 768 where the name does not tell


class LuminaAdapter(ChameleonAdapter):
    """Adapter of Lumina-mGPT checkpoints."""

    family = "lumina"
    default_guidance_scale = 4.0
    default_temperature = 1.0
    default_top_p = 1.0
    default_top_k = 2000

    @property
    def side(self) -> int:
        """Side of the square the checkpoint was trained for; other shapes have about its area."""
        stated = getattr(self.model.config, "image_side", None)
        return stated or trained_side(str(getattr(self.model, "name_or_path", "")))

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        square = (self.side, self.side)
        return [square, *(size for size in sizes_of_area(self.side) if size != square)]

    @cached_property
    def vocabulary_codes(self) -> CodesInVocabulary:
        return CodesInVocabulary(self._code_ids(), marks=(self.token_id(_LINE_END),))

    @cached_property
    def grid(self) -> Grid:
        rows, columns = (pixels // self.patch for pixels in self.image_size)
        return Grid.with_line_ends(rows, columns, mark=len(self.vocabulary_codes.codes))

    def caption(self, prompt: str) -> str:
        height, width = self.image_size
        return f"Generate an image of {width}x{height} according to the following prompt:\n{prompt}"

    def picture_start(self) -> list[int]:
        sizes = [self.token_id(f"<reserved{_SIZE_NAME + pixels // _SIZE_STEP:05d}>") for pixels in self.image_size]
        return [self.token_id(BEGIN_IMAGE), *sizes]

    def guidance_rows(self, ids: Tensor, mask: Tensor, tokenizer) -> tuple[Tensor, Tensor]:
        """Begin of image and the two size tokens, left-padded to the prompts' length."""
        return padded_row(ids, self.picture_start(), tokenizer.pad_token_id)


def trained_side(name: str) -> int:
    """Side in pixels that a checkpoint's name tells (Lumina-mGPT-7B-512), the most published one where it does not."""
    named = re.search("|".join(map(str, _TRAINED_SIDES)), name)
    return int(named.group()) if named else _TRAINED_SIDES[0]


def sizes_of_area(side: int) -> list[tuple[int, int]]:
    """Every (height, width) in steps of 32 pixels of at most the area of ``side`` x ``side``, tall to wide.

    The family's list: for each width the tallest picture that still fits, no longer than 4 : 1.
    """
    limit = (side // _SIZE_STEP) ** 2
    sizes, width, height = [], limit, 1
    while width > 0:
        if max(width, height) / min(width, height) <= _LONGEST_RATIO:
            sizes.append((height * _SIZE_STEP, width * _SIZE_STEP))
        if (height + 1) * width <= limit:
            height += 1
        else:
            width -= 1
    return sizes[::-1]
