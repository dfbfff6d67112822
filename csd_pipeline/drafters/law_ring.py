"""The newest laws of a stretch of positions: recorded laws of drafts, and laws of neighbours for new ones."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.decoding.indexing import admit_rows, count_up, put, take
from csd_pipeline.decoding.window import Window


class LawRing:
    """[B, size + 1, V] float32 in fixed storage; a position lives in slot ``position % size``.

    Args:
        images: B.
        size: positions that are remembered, at least a window.
        fallback: [V] law in the slot :attr:`fallback`, at the start that of every image.
    """

    def __init__(self, images: int, size: int, fallback: Tensor):
        self.size = self.fallback = size
        self.rows = fallback.new_zeros(images, size + 1, len(fallback))
        self.rows[:, self.fallback] = fallback
        self._at_fallback = torch.full((images, 1), size, device=fallback.device)

    def record(self, window: Window, laws: Tensor) -> None:
        """Store the laws [B, L+1, V] of a verified window.

        Those of padding may be stored too: they take slots of committed positions, more than ``size - W`` behind.
        """
        put(self.rows, self.slots(window.positions), laws)

    def set_fallback(self, laws: Tensor) -> None:
        """Put the laws [B, 1, V] into the fallback slot."""
        put(self.rows, self._at_fallback, laws)

    def fall_back_on(self, tokens: Tensor) -> None:
        """Put point masses on the tokens [B, 1] into the fallback slot."""
        symbols = count_up(self.rows.shape[-1], tokens.device)
        self.set_fallback((tokens[..., None] == symbols).to(self.rows.dtype))

    def slots(self, positions: Tensor) -> Tensor:
        """Slots of positions of any shape."""
        return positions % self.size

    def at(self, slots: Tensor) -> Tensor:
        """[B, L, V] laws in the slots [B, L]."""
        return take(self.rows, slots)

    def keep(self, rows: Tensor) -> None:
        """Drop every image but ``rows`` (int64 indices)."""
        self.rows, self._at_fallback = self.rows[rows], self._at_fallback[rows]

    def admit(self, slots: Tensor, newcomers: LawRing) -> None:
        """Put other images in the place of those in ``slots`` (int64)."""
        admit_rows(self.rows, slots, newcomers.rows)
