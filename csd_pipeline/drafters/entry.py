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
        self.needs_laws = init in ("left", "above", "mean")
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
        uniform = self.ring.new_full((), 1.0 / state.vocabulary)
        if self.needs_laws:
            return self._neighbour_laws(positions, uniform)
        shape = (*positions.shape, state.vocabulary)
        if self.init == "uniform":
            return uniform.expand(shape).contiguous()
        tokens, known = self._neighbour_tokens(state, positions, drafts, surviving)
        point = torch.zeros(shape, device=positions.device).scatter_(-1, tokens[..., None], 1.0)
        return torch.where(known[..., None], point, uniform)

    def _neighbour_laws(self, positions: Tensor, uniform: Tensor) -> Tensor:
        total, count = 0.0, 0.0
        for offset, used in ((1, self.init in ("left", "mean")), (self.columns, self.init in ("above", "mean"))):
            if used:
                source = positions - offset
                known = ((source >= 0) & (source < self.seen[:, None]))[..., None]
                index = (source % self.size)[..., None].expand(-1, -1, self.ring.shape[-1])
                total = total + torch.where(known, self.ring.gather(1, index), 0.0)
                count = count + known.float()
        return torch.where(count > 0, total / count.clamp(min=1.0), uniform)

    def _neighbour_tokens(self, state: DecodingState, positions: Tensor, drafts: Tensor, surviving: Tensor):
        """Token to the left (the newest known one if that is a draft to come) or above, and whether it exists."""
        frontier = state.committed + surviving
        source = positions - 1 if self.init == "left-copy" else positions - self.columns
        if self.init == "left-copy":
            source = torch.minimum(source, frontier[:, None] - 1)
        known = (source >= 0) & (source < frontier[:, None])
        in_window = source - state.committed[:, None]
        committed = state.tokens.gather(1, source.clamp(0, state.tokens.shape[1] - 1))
        drafted = drafts.gather(1, in_window.clamp(0, drafts.shape[1] - 1))
        return torch.where(in_window >= 0, drafted, committed), known

    def keep(self, rows: Tensor) -> None:
        self.ring, self.seen = self.ring[rows], self.seen[rows]
