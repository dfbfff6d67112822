"""Steers drafts towards tokens whose target probability has grown from pass to pass."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.decoding.indexing import admit_rows, count_up, take
from csd_pipeline.decoding.window import Window


class GrowthGuide:
    """Scores of consecutive growth, aligned by absolute position.

    At every pass the law ``p`` of a position is compared with the one before: ``m <- decay m + (p - p_before)`` where
    the probability has risen, 0 elsewhere; a position seen for the first time has ``m = 0``. Only the ``share`` most
    probable tokens keep their scores, and drafts are drawn from ``g = (p + weight m) / (1 + weight sum m)``.

    Args:
        weight: of the scores.
        decay: of a score per pass.
        share: of the tokens of positive probability, the most probable ones, whose scores count.
        laws: [B, T, V], of the shape of the laws of a pass.
    """

    def __init__(self, weight: float, decay: float, share: float, laws: Tensor):
        self.weight, self.decay, self.share = weight, decay, share
        self.before = torch.zeros_like(laws)  # laws of the pass before, slot 0 the next position to decide
        self.scores = torch.zeros_like(laws)
        self.known = laws.new_zeros(len(laws), dtype=torch.int64)  # how many leading slots have them

    def laws(self, window: Window, accepted: Tensor) -> Tensor:
        """[B, L+1, V] guided laws ``g`` of a verified window, which then slides by ``accepted + 1`` positions."""
        laws = window.target_laws
        scores = self._grown(laws)
        bonus = self.weight * self._filtered(laws, scores)
        self._slide(laws, scores, accepted, window.lengths)
        return (laws + bonus) / (1 + bonus.sum(-1, keepdim=True))

    def _grown(self, laws: Tensor) -> Tensor:
        slot = torch.arange(laws.shape[1], device=laws.device)
        growth = laws - fit(self.before, laws.shape[1])
        growing = (growth > 0) & (slot < self.known[:, None])[..., None]
        return torch.where(growing, self.decay * fit(self.scores, laws.shape[1]) + growth, 0.0)

    def _filtered(self, laws: Tensor, scores: Tensor) -> Tensor:
        """The scores of the most probable tokens of each law, 0 elsewhere."""
        support = (laws > 0).sum(-1, keepdim=True)
        count = (self.share * support - 1e-3).ceil().clamp(min=1)  # less than a token, more than rounding
        most = min(int(self.share * laws.shape[-1]) + 1, laws.shape[-1])
        top = laws.topk(most, dim=-1).indices
        rank = torch.arange(most, device=laws.device)
        return torch.zeros_like(scores).scatter_(-1, top, torch.where(rank < count, scores.gather(-1, top), 0.0))

    def _slide(self, laws: Tensor, scores: Tensor, accepted: Tensor, lengths: Tensor) -> None:
        self.before.copy_(fit(slide(laws, accepted), self.before.shape[1]))
        self.scores.copy_(fit(slide(scores, accepted), self.scores.shape[1]))
        self.known.copy_(lengths - accepted)

    def keep(self, rows: Tensor) -> None:
        """Drop every image but ``rows`` (int64 indices)."""
        self.before, self.scores, self.known = self.before[rows], self.scores[rows], self.known[rows]

    def admit(self, slots: Tensor, newcomers: GrowthGuide) -> None:
        """Put other images in the place of those in ``slots`` (int64)."""
        for name in ("before", "scores", "known"):
            admit_rows(getattr(self, name), slots, getattr(newcomers, name))


def slide(values: Tensor, accepted: Tensor) -> Tensor:
    """[B, T, ...] values moved to the front by ``accepted + 1`` [B] slots; the last one fills the rest."""
    last = values.shape[1] - 1
    source = (accepted[:, None] + count_up(last + 2, values.device)[1:]).clamp_(max=last)
    return take(values, source)


def fit(values: Tensor, length: int) -> Tensor:
    """Cut or zero-pad dimension 1 to ``length``."""
    missing = length - values.shape[1]
    if missing <= 0:
        return values[:, :length]
    return torch.cat([values, values.new_zeros(values.shape[0], missing, *values.shape[2:])], 1)
