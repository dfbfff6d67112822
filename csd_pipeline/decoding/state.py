"""The device-side state of one decoding run: what has been committed, and what is noted about it.

A pass changes it in place, so that a pass that was captured once finds it where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .indexing import admit_rows, count_up
from .noise import IndexedNoise
from .verification import Verification
from .window import Window, entropy

if TYPE_CHECKING:
    from csd_pipeline.targets.base import Grid


_PER_IMAGE = ("tokens", "last_tokens", "committed", "passes", "spent")


@dataclass
class DecodingState:
    """Rows are the active images; finished ones leave.

    Args:
        grid: where the tokens go.
        vocabulary: V.
        noise: indexed noise of the active images.
        tokens: [B, N + 1] int64, the committed tokens first; what stands behind them does not count.
        last_tokens: [B, 1] int64, the newest committed token of each image that is not finished.
        committed: [B] int64, committed tokens per image.
        passes: [B] int64, passes of each image so far; they number its random draws.
        counts: ``committed`` as last read by the host.
        spent: [B] float32, drift spent so far; kept only for filters that read it.
        maps: [B, N + 1] float32 by name, filled like ``tokens``; ``drift`` at least.
        row_above: every image has committed a whole row of the grid, as far as the host knows; False for passes that
            have one shape.
    """

    grid: Grid
    vocabulary: int
    noise: IndexedNoise
    tokens: Tensor
    last_tokens: Tensor
    committed: Tensor
    passes: Tensor
    counts: list[int]
    spent: Tensor
    maps: dict[str, Tensor]
    row_above: bool = False
    _upcoming: Tensor | None = field(default=None, repr=False)

    @classmethod
    def start(cls, grid: Grid, vocabulary: int, seeds: Tensor, maps: bool = False) -> DecodingState:
        """Before the prompt.

        Args:
            grid: where the tokens go.
            vocabulary: V.
            seeds: [B, 2] int64 from :func:`~csd_pipeline.decoding.noise.seed_words`.
            maps: also note entropy, acceptance and pass number at every position.
        """
        images = len(seeds)
        if grid.forced is not None:  # once: a copy in every pass would make the host wait
            grid = replace(grid, forced=grid.forced.to(seeds.device))
        zeros = torch.zeros(images, dtype=torch.int64, device=seeds.device)
        tokens = torch.zeros(images, grid.tokens + 1, dtype=torch.int64, device=seeds.device)
        names = ("drift", "entropy", "acceptance", "passes") if maps else ("drift",)
        noted = {name: torch.zeros(tokens.shape, device=seeds.device) for name in names}
        noise, counts = IndexedNoise(seeds, grid.tokens), [0] * images
        last = torch.zeros_like(zeros)[:, None]
        return cls(grid, vocabulary, noise, tokens, last, zeros, zeros.clone(), counts, zeros.float(), noted)

    def upcoming(self, count: int) -> Tensor:
        """[B, count] int64, the positions after the committed ones; the same tensor until the next commit."""
        if self._upcoming is None or self._upcoming.shape[1] != count:
            self._upcoming = self.committed[:, None] + count_up(count, self.committed.device)
        return self._upcoming

    def room(self, most: int) -> Tensor:
        """[B] drafts that still fit, at most ``most``: one token of every pass is the target's own."""
        return (self.grid.tokens - 1 - self.committed).clamp_(0, most)

    def forced(self, positions: Tensor) -> Tensor | None:
        """Forced token (or -1) at each absolute position, None when the grid forces nothing."""
        if self.grid.forced is None:
            return None
        table = self.grid.forced
        return torch.where(positions < len(table), table[positions.clamp(max=len(table) - 1)], -1)

    def commit(self, window: Window, outcome: Verification, relaxed: bool = True) -> None:
        """Append the accepted drafts and the next token of every image, each by its own length.

        Args:
            window: what was verified.
            outcome: of it.
            relaxed: False where no drift can be spent, so that none need be noted.
        """
        run, target = outcome.next_token[:, None], window.positions  # with no drafts, that is all
        if window.drafts.shape[1]:
            # what is written behind the next token is written over before it counts
            run = torch.cat([window.drafts, run], 1).scatter(1, outcome.accepted[:, None], run)
        if not window.full:
            target = target.clamp(max=self.grid.tokens)
        self.tokens.scatter_(1, target, run)
        self.last_tokens.copy_(outcome.next_token[:, None])
        self._note(window, outcome, target, relaxed)
        self.committed.add_(outcome.accepted).add_(1)
        if not window.full:  # the host may learn late that an image is finished: a pass more changes nothing
            self.committed.clamp_(max=self.grid.tokens)
        self.passes.add_(1)
        self._upcoming = None
        self.noise.forget_pass()

    def _note(self, window: Window, outcome: Verification, position: Tensor, relaxed: bool) -> None:
        """Write the maps of the positions [B, L+1], of which those that are committed count."""
        # A token that was no draft spends nothing, as the map says from the start: it stands behind all drafts of the
        # pass, and those of earlier passes did not reach further.
        if relaxed:
            drift = outcome.drift if window.full else outcome.drift * window.valid
            self.maps["drift"].scatter_(1, position[:, :-1], drift)
        if len(self.maps) > 1:
            acceptance = outcome.acceptance.float().masked_fill(~window.valid, torch.nan)
            acceptance = torch.nn.functional.pad(acceptance, (0, 1), value=torch.nan)
            self.maps["entropy"].scatter_(1, position, entropy(window.target_laws))
            self.maps["acceptance"].scatter_(1, position, acceptance)
            self.maps["passes"].scatter_(1, position, (self.passes[:, None] + 1).float().expand(position.shape))

    def charge(self, window: Window, outcome: Verification) -> None:
        """Enter the drift of every draft that was tested into the ledger, the rejected one included."""
        tested = window.real(count_up(window.drafts.shape[1], self.spent.device) <= outcome.accepted[:, None])
        self.spent.add_((outcome.drift * tested).sum(-1))

    def keep(self, rows: Tensor, counts: list[int]) -> None:
        """Drop every image but ``rows`` (int64 indices); ``counts`` are their committed tokens, known to the host."""
        self.noise = self.noise.keep(rows)
        for name in _PER_IMAGE:
            setattr(self, name, getattr(self, name)[rows])
        self.maps = {name: values[rows] for name, values in self.maps.items()}
        self.counts, self._upcoming = counts, None

    def admit(self, slots: list[int], index: Tensor, newcomers: DecodingState) -> None:
        """Put other images in the place of those in ``slots`` (``index`` [K] int64: the same, on the device)."""
        self.noise.admit(slots, newcomers.noise)
        for name in _PER_IMAGE:
            admit_rows(getattr(self, name), index, getattr(newcomers, name))
        for name, values in self.maps.items():
            admit_rows(values, index, newcomers.maps[name])
        for slot, count in zip(slots, newcomers.counts, strict=True):
            self.counts[slot] = count
        self._upcoming = None
