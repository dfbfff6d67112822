"""Laws of drafts that enter the window: any law that is really sampled from and recorded keeps decoding exact."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.window import Window

from .entry_table import free_above, free_before, kept_table, nearest_above, nearest_left, slot_table
from .law_ring import LawRing

_NEIGHBOUR_LAWS, _COPIES = ("left", "above", "mean"), ("left-copy", "above-copy")
ENTRIES = ("uniform", *_NEIGHBOUR_LAWS, *_COPIES)


class EntryLaws:
    """Finds the laws of entering drafts among the newest target laws, one row of the grid and the window long.

    Forced tokens (line marks) are no neighbours: to the left of a row's start is the last free position of the row
    before, and tokens that are forced anywhere are not among those of the uniform law.

    Args:
        init: one of :data:`ENTRIES`.
        state: the run it serves.
        window: largest number of tokens per forward.
    """

    def __init__(self, init: str, state: DecodingState, window: int):
        self.init, self.columns = init, state.grid.columns
        self.free, self.uniform = _free_positions(state), _uniform_law(state)
        reach = self.columns if init in _NEIGHBOUR_LAWS else 0
        self.ring = LawRing(len(state.counts), window + reach + 1 if window > 1 else 1, self.uniform)
        self.window = window
        self.table = None
        if window > 1 and init not in _COPIES:
            sizes = (self.columns, window, self.ring.size, state.grid.tokens, self.uniform.device)
            self.table = kept_table(init, *sizes) if self.free is None else slot_table(init, *sizes, self.free)

    def record(self, window: Window) -> None:
        """Store the target laws of a verified window."""
        self.ring.record(window, window.target_laws)

    def laws(self, state: DecodingState, positions: Tensor, drafts: Tensor, newest: Tensor) -> Tensor:
        """[B, L, V] draft laws of the L positions to be committed next.

        Those up to the position ``newest`` [B] are the recorded ones, as their drafts in ``drafts`` [B, W] were kept.
        The others are made of neighbours' laws.
        """
        newest = newest[:, None]
        if self.init in _COPIES:
            seen = newest + 1
            laws = self._point(*self._neighbour_tokens(state, positions, drafts, seen))
            return torch.where((positions < seen)[..., None], self.ring.at(self.ring.slots(positions)), laws)
        if self.init in ("above", "mean") and not (state.row_above and self.free is None):
            self._repeat_newest_token(state, drafts, newest)
        row = torch.add(positions, newest, alpha=2 * self.window - 1)
        slots = self.table.index_select(0, row.flatten()).view(len(row), -1)
        laws = self.ring.at(slots).unflatten(1, (row.shape[1], -1))  # [B, L, K, V]
        return laws[:, :, 0] if laws.shape[2] == 1 else torch.lerp(laws[:, :, 0], laws[:, :, 1], 0.5)

    def _repeat_newest_token(self, state: DecodingState, drafts: Tensor, newest: Tensor) -> None:
        """Make the newest free token, committed or a draft that survived, the fallback of the ring."""
        seen = newest + 1
        if self.free is None:
            run = torch.cat([state.last_tokens, drafts], 1)
            self.ring.fall_back_on(run.gather(1, seen - state.committed[:, None]))
        else:
            self.ring.set_fallback(self._point(*self._neighbour_tokens(state, seen, drafts, seen)))

    def _point(self, tokens: Tensor, known: Tensor) -> Tensor:
        """[B, L, V] point masses on the tokens [B, L], the uniform law where there is none."""
        point = self.uniform.new_zeros(*tokens.shape, len(self.uniform)).scatter_(-1, tokens[..., None], 1.0)
        return torch.where(known[..., None], point, self.uniform)

    def _neighbour_tokens(self, state: DecodingState, positions: Tensor, drafts: Tensor, seen: Tensor):
        """Nearest known token to the left or above (committed, or a draft that survived), and whether there is one."""
        if self.init == "above-copy":
            source = free_above(nearest_above(positions, seen, self.columns), self.free)
        else:
            source = free_before(nearest_left(positions, seen), self.free)
        in_window = source - state.committed[:, None]
        committed = state.tokens.gather(1, source.clamp(0, state.tokens.shape[1] - 1))
        drafted = drafts.gather(1, in_window.clamp(0, drafts.shape[1] - 1))
        return torch.where(in_window >= 0, drafted, committed), source >= 0

    def keep(self, rows: Tensor) -> None:
        self.ring.keep(rows)

    def admit(self, slots: Tensor, newcomers: EntryLaws) -> None:
        """Put other images in the place of those in ``slots`` (int64)."""
        self.ring.admit(slots, newcomers.ring)


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
