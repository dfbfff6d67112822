"""Laws of drafts that enter the window: any law that is really sampled from and recorded keeps decoding exact."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.window import Window

ENTRIES = ("uniform", "left", "above", "mean", "left-copy", "above-copy")


class EntryLaws:
    """Remembers the newest target laws of a stretch of positions in a ring, one row of the grid plus the window long.

    Args:
        init: one of :data:`ENTRIES`.
        state: the run it serves.
        window: largest number of tokens per forward.
    """

    def __init__(self, init: str, state: DecodingState, window: int):
        self.init, self.columns = init, state.grid.columns
        self.needs_laws = window > 1 and init in ("left", "above", "mean")
        self.size = self.columns + window + 1
        shape = (len(state.counts), self.size + 1 if self.needs_laws else 0, state.vocabulary)
        self.ring = torch.zeros(shape, device=state.tokens.device)
        self.seen = torch.zeros_like(state.committed)  # positions below this have a recorded law

    def record(self, window: Window) -> None:
        """Store the target laws of a verified window."""
        self.seen = window.start + window.lengths + 1
        if self.needs_laws:
            real = window.positions < self.seen[:, None]
            slot = torch.where(real, window.positions % self.size, self.size)  # padding goes to the spare slot
            self.ring.scatter_(1, slot[..., None].expand_as(window.target_laws), window.target_laws)

    def laws(self, state: DecodingState, positions: Tensor, drafts: Tensor, surviving: Tensor) -> Tensor:
        """[B, L, V] entry laws of the positions [B, L]; ``drafts`` [B, L] holds ``surviving`` [B] kept drafts."""
        if self.init == "uniform":
            return self.ring.new_full((*positions.shape, state.vocabulary), 1.0 / state.vocabulary)
        tokens, known = self._neighbour_tokens(state, positions, drafts, surviving)
        point = self.ring.new_zeros(*positions.shape, state.vocabulary).scatter_(-1, tokens[..., None], 1.0)
        if not self.needs_laws:
            return torch.where(known[..., None], point, 1.0 / state.vocabulary)
        return self._neighbour_laws(positions, point)

    def _neighbour_laws(self, positions: Tensor, left_token: Tensor) -> Tensor:
        """Laws of the neighbours; one that has none yet is replaced by the nearest position that has.

        In the first row nothing is above; "above" and "mean" then repeat the newest token, a point mass ``left_token``:
        its context is a likely one (a run of equal codes), drafts from a law are not, and Jacobi needs good contexts.
        """
        known_below = self.seen[:, None]
        left, above = nearest_left(positions, known_below), nearest_above(positions, known_below, self.columns)
        if self.init == "left":
            return self._law_at(left)
        laws = self._law_at(above)
        if self.init == "mean":
            adjacent = (left == positions - 1)[..., None]
            laws = torch.where(adjacent, 0.5 * (laws + self._law_at(left)), laws)
        return torch.where((above >= 0)[..., None], laws, left_token)

    def _law_at(self, source: Tensor) -> Tensor:
        index = (source % self.size)[..., None].expand(-1, -1, self.ring.shape[-1])
        return self.ring.gather(1, index)

    def _neighbour_tokens(self, state: DecodingState, positions: Tensor, drafts: Tensor, surviving: Tensor):
        """Nearest known token to the left or above (committed, or a draft that survived), and whether there is one."""
        frontier = (state.committed + surviving)[:, None]
        source = nearest_left(positions, frontier)
        if self.init == "above-copy":
            source = nearest_above(positions, frontier, self.columns)
        in_window = source - state.committed[:, None]
        committed = state.tokens.gather(1, source.clamp(0, state.tokens.shape[1] - 1))
        drafted = drafts.gather(1, in_window.clamp(0, drafts.shape[1] - 1))
        return torch.where(in_window >= 0, drafted, committed), source >= 0

    def keep(self, rows: Tensor) -> None:
        self.ring, self.seen = self.ring[rows], self.seen[rows]


def nearest_left(positions: Tensor, known_below: Tensor) -> Tensor:
    """The nearest earlier position of those below ``known_below``."""
    return torch.minimum(positions, known_below) - 1


def nearest_above(positions: Tensor, known_below: Tensor, columns: int) -> Tensor:
    """The nearest position of the same column, in an earlier row, below ``known_below``; negative if there is none."""
    rows = (positions - known_below).div(columns, rounding_mode="floor") + 1
    return positions - columns * rows.clamp(min=1)
