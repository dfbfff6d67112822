"""Laws of drafts that enter the window: any law that is really sampled from and recorded keeps decoding exact."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.window import Window

ENTRIES = ("uniform", "left", "above", "mean", "left-copy", "above-copy")


class EntryLaws:
    """Remembers the newest target laws of a stretch of positions in a ring, one row of the grid plus the window long.

    Forced tokens (line marks) are no neighbours: to the left of a row's start is the last free position of the row
    before, and tokens that are forced anywhere are not among those of the uniform law.

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
        self.free, self.uniform = _free_positions(state), _uniform_law(state)
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
            return self.uniform.expand(*positions.shape, -1)
        tokens, known = self._neighbour_tokens(state, positions, drafts, surviving)
        point = self.ring.new_zeros(*positions.shape, state.vocabulary).scatter_(-1, tokens[..., None], 1.0)
        point = torch.where(known[..., None], point, self.uniform)
        return self._neighbour_laws(positions, point) if self.needs_laws else point

    def _neighbour_laws(self, positions: Tensor, left_token: Tensor) -> Tensor:
        """Laws of the neighbours; one that has none yet is replaced by the nearest position that has.

        In the first row nothing is above; "above" and "mean" then repeat the newest token, a point mass ``left_token``:
        its context is a likely one (a run of equal codes), drafts from a law are not, and Jacobi needs good contexts.
        """
        known_below = self.seen[:, None]
        left = self._free_before(nearest_left(positions, known_below))
        if self.init == "left":
            return torch.where((left >= 0)[..., None], self._law_at(left), left_token)
        above = self._free_above(nearest_above(positions, known_below, self.columns))
        laws = self._law_at(above)
        if self.init == "mean":
            adjacent = ((left >= 0) & (left == self._free_before(positions - 1)))[..., None]
            laws = torch.where(adjacent, 0.5 * (laws + self._law_at(left)), laws)
        return torch.where((above >= 0)[..., None], laws, left_token)

    def _law_at(self, source: Tensor) -> Tensor:
        index = (source % self.size)[..., None].expand(-1, -1, self.ring.shape[-1])
        return self.ring.gather(1, index)

    def _neighbour_tokens(self, state: DecodingState, positions: Tensor, drafts: Tensor, surviving: Tensor):
        """Nearest known token to the left or above (committed, or a draft that survived), and whether there is one."""
        frontier = (state.committed + surviving)[:, None]
        if self.init == "above-copy":
            source = self._free_above(nearest_above(positions, frontier, self.columns))
        else:
            source = self._free_before(nearest_left(positions, frontier))
        in_window = source - state.committed[:, None]
        committed = state.tokens.gather(1, source.clamp(0, state.tokens.shape[1] - 1))
        drafted = drafts.gather(1, in_window.clamp(0, drafts.shape[1] - 1))
        return torch.where(in_window >= 0, drafted, committed), source >= 0

    def _free_before(self, source: Tensor) -> Tensor:
        """``source`` itself where it is free, else the nearest free position before it; -1 if there is none."""
        return source if self.free is None else self.free[source.clamp(0, len(self.free) - 1)]

    def _free_above(self, source: Tensor) -> Tensor:
        """``source`` where it is free, else -1: whole columns are forced, there is no use in going further up."""
        return source if self.free is None else torch.where(self._free_before(source) == source, source, -1)

    def keep(self, rows: Tensor) -> None:
        self.ring, self.seen = self.ring[rows], self.seen[rows]


def _free_positions(state: DecodingState) -> Tensor | None:
    """[N] int64, the last position up to each that is not forced, -1 if there is none; None when nothing is forced."""
    positions = torch.arange(state.grid.tokens, device=state.tokens.device)
    forced = state.forced(positions)
    return None if forced is None else torch.where(forced < 0, positions, -1).cummax(0).values


def _uniform_law(state: DecodingState) -> Tensor:
    """[V] the same for every token that is forced nowhere."""
    law = torch.ones(state.vocabulary + 1, device=state.tokens.device)  # one more, for positions that force nothing
    if state.grid.forced is not None:
        marks = state.grid.forced.to(law.device)
        law = law.scatter(0, torch.where(marks >= 0, marks, state.vocabulary), 0.0)
    law = law[:-1]
    law = torch.where(law.sum() > 0, law, 1.0)  # everything is forced somewhere: then nothing can be left out
    return law / law.sum()


def nearest_left(positions: Tensor, known_below: Tensor) -> Tensor:
    """The nearest earlier position of those below ``known_below``."""
    return torch.minimum(positions, known_below) - 1


def nearest_above(positions: Tensor, known_below: Tensor, columns: int) -> Tensor:
    """The nearest position of the same column, in an earlier row, below ``known_below``; negative if there is none."""
    rows = (positions - known_below).div(columns, rounding_mode="floor") + 1
    return positions - columns * rows.clamp(min=1)
