"""Jacobi drafting: the target drafts for itself, from its own laws of the previous pass; no second model."""

from __future__ import annotations

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from csd_pipeline.checks import require_choice, require_integer
from csd_pipeline.decoding.noise import Purpose
from csd_pipeline.decoding.sampling import draw_by_inverse_cdf, draw_by_race, force_tokens, residual
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.verification import Verification
from csd_pipeline.decoding.window import Window

from .base import Drafter, DraftRun
from .entry import ENTRIES, EntryLaws

REDRAWS = ("fresh", "coupled", "gumbel")


class JacobiDrafter(Drafter):
    """Speculative Jacobi decoding (SJD, arXiv 2410.01699) and its coupled forms (arXiv 2510.24211).

    After a pass the drafts behind the first rejection are drawn again from the target laws ``p`` of that pass, which
    become their recorded laws. Departures from released loops: the recorded law is always the law really used (kept
    tokens of a coupled redraw record ``p``), and every image advances by its own length.

    Args:
        window: tokens per target forward, >= 1: one committed token and ``window - 1`` drafts. 1 is plain decoding.
        redraw: ``"fresh"`` independent draws (SJD); ``"coupled"`` keeps a draft as often as its new law allows
            (maximal coupling); ``"gumbel"`` position-indexed noise, which makes an exact run return the very picture
            of plain decoding.
        init: law of drafts entering the window: ``"uniform"``; the recorded target law of the position to the left
            (``"left"``), above (``"above"``) or the mean of both (``"mean"``); ``"left-copy"`` / ``"above-copy"``
            repeat a token (point mass). A neighbour that has no law yet is replaced by the nearest position to the
            left or above that has one; in the first row, where nothing is above, the newest token is repeated.

    Raises:
        ValueError: ``window`` < 1, or an unknown ``redraw`` or ``init``.
    """

    source = "arXiv 2410.01699, 2510.24211"

    @register_to_config
    def __init__(self, window: int = 16, redraw: str = "coupled", init: str = "mean"):
        require_integer("window", window, 1)
        require_choice("redraw", redraw, REDRAWS)
        require_choice("init", init, ENTRIES)

    @property
    def shares_noise(self) -> bool:
        return self.config.redraw == "gumbel"

    def begin(self, state: DecodingState) -> JacobiRun:
        return JacobiRun(
            self.config.window,
            self.config.redraw,
            EntryLaws(self.config.init, state, min(self.config.window, state.grid.tokens)),
        )


class JacobiRun(DraftRun):
    """Surviving drafts of the last window, and how many of them each image has."""

    def __init__(self, window: int, redraw: str, entry: EntryLaws):
        self.window, self.redraw, self.entry = window, redraw, entry
        self.drafts: Tensor | None = None  # [B, T] int64
        self.laws: Tensor | None = None  # [B, T, V]
        self.surviving: Tensor | None = None  # [B] int64

    def propose(self, state: DecodingState, length: int) -> tuple[Tensor, Tensor, Tensor]:
        if length == 0:
            none = torch.zeros(len(state.counts), 0, dtype=torch.int64, device=state.tokens.device)
            return none, none.new_zeros(*none.shape, state.vocabulary, dtype=torch.float32), none.bool()
        slot = torch.arange(length, device=state.tokens.device)
        positions = state.upcoming(length + 1)[:, :-1]
        kept = slot < self.surviving[:, None]
        drafts, laws = _fit(self.drafts, length), _fit(self.laws, length)
        entry_laws = self.entry.laws(state, positions, drafts, self.surviving)
        forced = state.forced(positions)
        if forced is not None:
            entry_laws = force_tokens(entry_laws, forced)
        entry_drafts = self._draw_entries(state, entry_laws)
        return torch.where(kept, drafts, entry_drafts), torch.where(kept[..., None], laws, entry_laws), ~kept

    def _draw_entries(self, state: DecodingState, laws: Tensor) -> Tensor:
        positions = state.upcoming(laws.shape[1] + 1)
        if self.redraw == "gumbel":
            return draw_by_race(laws, state.noise.gumbel(positions[:, :-1], laws.shape[-1]))
        return draw_by_inverse_cdf(laws, state.noise.uniform(positions, Purpose.ENTRY, state.passes)[:, :-1])

    def observe(self, state: DecodingState, window: Window, outcome: Verification) -> None:
        if self.window == 1:
            return  # plain decoding: nothing is ever drafted
        self.entry.record(window)
        drafts = self._redraw(state, window, outcome)
        last = drafts.shape[1] - 1
        source = (outcome.accepted[:, None] + 1 + torch.arange(last + 1, device=drafts.device)).clamp(max=last)
        self.drafts = drafts.gather(1, source)
        self.laws = window.target_laws.gather(1, source[..., None].expand_as(window.target_laws))
        self.surviving = window.lengths - outcome.accepted

    def _redraw(self, state: DecodingState, window: Window, outcome: Verification) -> Tensor:
        """[B, L+1] new drafts from the target laws of this pass; only those behind the first rejection are used."""
        laws, spoiled = window.target_laws, outcome.spoiled
        if self.redraw == "gumbel" and spoiled is None:
            if outcome.choice is not None:
                return outcome.choice
            return draw_by_race(laws, state.noise.gumbel(window.positions, laws.shape[-1]))
        uniform = state.noise.uniform(window.positions, Purpose.REDRAW, state.passes)
        if self.redraw != "coupled" or window.drafts.shape[1] == 0:
            return draw_by_inverse_cdf(laws, uniform)
        # Accept-or-repair with the plain rule at every slot: the new draft has law p and equals the old one as often as
        # any coupling can make it. The slot after the last real draft never held one.
        repairable = window.valid if spoiled is None else window.valid & ~spoiled
        repair = torch.where(repairable[..., None], residual(window.p, window.q), window.p)
        drawn = draw_by_inverse_cdf(torch.cat([repair, laws[:, -1:]], 1), uniform)
        return torch.cat([torch.where(outcome.kept, window.drafts, drawn[:, :-1]), drawn[:, -1:]], 1)

    def keep(self, rows: Tensor) -> None:
        if self.drafts is None:
            return
        self.drafts, self.laws, self.surviving = self.drafts[rows], self.laws[rows], self.surviving[rows]
        self.entry.keep(rows)


def _fit(values: Tensor, length: int) -> Tensor:
    """Cut or zero-pad dimension 1 to ``length``."""
    missing = length - values.shape[1]
    if missing <= 0:
        return values[:, :length]
    return torch.cat([values, values.new_zeros(values.shape[0], missing, *values.shape[2:])], 1)
