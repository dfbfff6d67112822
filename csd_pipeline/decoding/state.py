"""The device-side state of one decoding run: what has been committed, and whose row is whose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .indexing import count_up
from .noise import IndexedNoise
from .verification import Verification
from .window import Window

if TYPE_CHECKING:
    from csd_pipeline.targets.base import Grid


@dataclass
class DecodingState:
    """Rows are the active images; finished ones leave.

    Args:
        grid: where the tokens go.
        vocabulary: V.
        noise: indexed noise of the active images.
        tokens: [B, N + 1] int64 committed tokens (the last column collects writes that do not count).
        committed: [B] int64, committed tokens per image.
        passes: [] int64, passes so far; numbers the random draws (all images of a batch start together).
        counts: ``committed`` as last read by the host.
        spent: [B] float32, drift spent so far; kept only for filters that read it.
    """

    grid: Grid
    vocabulary: int
    noise: IndexedNoise
    tokens: Tensor
    committed: Tensor
    passes: Tensor
    counts: list[int]
    spent: Tensor
    _upcoming: Tensor | None = field(default=None, repr=False)

    @classmethod
    def start(cls, grid: Grid, vocabulary: int, seeds: Tensor) -> DecodingState:
        images = len(seeds)
        zeros = torch.zeros(images, dtype=torch.int64, device=seeds.device)
        tokens = torch.zeros(images, grid.tokens + 1, dtype=torch.int64, device=seeds.device)
        noise, passes = IndexedNoise(seeds, grid.tokens), zeros.new_zeros(())
        return cls(grid, vocabulary, noise, tokens, zeros, passes, [0] * images, zeros.float())

    @property
    def last_tokens(self) -> Tensor:
        """[B, 1] newest committed token of each image."""
        return self.tokens.gather(1, (self.committed - 1)[:, None])

    def upcoming(self, count: int) -> Tensor:
        """[B, count] int64, the positions after the committed ones; the same tensor until the next commit."""
        if self._upcoming is None or self._upcoming.shape[1] != count:
            self._upcoming = self.committed[:, None] + count_up(count, self.committed.device)
        return self._upcoming

    def room(self) -> Tensor:
        """[B] drafts that still fit: one token of every pass is the target's own."""
        return self.grid.tokens - self.committed - 1

    def forced(self, positions: Tensor) -> Tensor | None:
        """Forced token (or -1) at each absolute position, None when the grid forces nothing."""
        if self.grid.forced is None:
            return None
        table = self.grid.forced.to(positions.device)
        return torch.where(positions < len(table), table[positions.clamp(max=len(table) - 1)], -1)

    def commit(self, window: Window, outcome: Verification) -> None:
        """Append the accepted drafts and the next token of every image, each by its own length."""
        run = torch.cat(
            [window.drafts, window.drafts[:, :1] if window.drafts.shape[1] else outcome.next_token[:, None]], 1
        )
        run = run.scatter(1, outcome.accepted[:, None], outcome.next_token[:, None])
        rejected = count_up(run.shape[1], run.device) > outcome.accepted[:, None]
        target = window.positions.masked_fill(rejected, self.grid.tokens)
        self.tokens.scatter_(1, target, run)
        self.committed = self.committed + outcome.accepted + 1
        self.passes = self.passes + 1
        self._upcoming = None

    def charge(self, window: Window, outcome: Verification) -> None:
        """Enter the drift of every draft that was tested into the ledger, the rejected one included."""
        slot = count_up(window.drafts.shape[1], self.spent.device)
        tested = (slot <= outcome.accepted[:, None]) & window.valid
        self.spent = self.spent + (outcome.drift * tested).sum(-1)

    def keep(self, rows: Tensor, counts: list[int]) -> None:
        """Drop every image but ``rows`` (int64 indices); ``counts`` are their committed tokens, known to the host."""
        self.noise = self.noise.keep(rows)
        self.tokens, self.committed, self.spent = self.tokens[rows], self.committed[rows], self.spent[rows]
        self.counts, self._upcoming = counts, None
