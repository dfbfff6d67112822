"""The growing picture: committed rows, drawn at most four times a second and for a fifth of the time at most, then the
finished picture."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from PIL import Image

_EVERY, _SHARE = 0.25, 0.2  # seconds between two previews; share of the run they may cost
_SHOWN = 4  # images of a batch
_BLANK = 64  # grey of the rows to come


class RowPreview:
    """Decodes the first images of a batch as far as their rows are committed.

    Args:
        adapter: of the target: its grid, size and row decoder.
        clock: seconds, for tests.
    """

    def __init__(self, adapter, clock: Callable[[], float] = time.monotonic):
        self.adapter, self.clock = adapter, clock
        self.rows: list[int] = []
        self.due = clock()

    def __call__(self, tokens, counts: list[int]) -> Image.Image | None:
        """The picture so far, or None when none is due or no row was added. The finished one is always due.

        Args:
            tokens: [B, N] int64 token ids.
            counts: committed tokens of every image.
        """
        rows = [count // self.adapter.grid.columns for count in counts[:_SHOWN]]
        started, finished = self.clock(), min(counts) >= self.adapter.grid.tokens
        if rows == self.rows or not any(rows) or (started < self.due and not finished):
            return None
        self.rows = rows
        picture = self._draw(tokens[:_SHOWN], rows)
        cost = self.clock() - started
        self.due = started + max(_EVERY, cost / _SHARE)
        return picture

    def _draw(self, tokens, rows: list[int]) -> Image.Image:
        height, width = self.adapter.image_size
        pixels = self.adapter.decode_rows(tokens, max(rows)).float().clamp(-1, 1)
        pixels = ((pixels + 1) * 127.5).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        page = np.full((len(rows), height, width, 3), _BLANK, dtype=np.uint8)
        for image, count in enumerate(rows):
            end = height * count // self.adapter.grid.rows
            page[image, :end] = pixels[image, :end]
        return Image.fromarray(_side_by_side(page))


def _side_by_side(images: np.ndarray) -> np.ndarray:
    """[B, H, W, 3] as one picture, two a row from three images on."""
    if len(images) % 2 and len(images) > 1:
        images = np.concatenate([images, np.full_like(images[:1], _BLANK)])
    columns = 1 if len(images) == 1 else 2
    rows = [np.concatenate(list(images[i : i + columns]), 1) for i in range(0, len(images), columns)]
    return np.concatenate(rows, 0)
