"""GSD's rule: a draft is judged by the mass of the codes that rank beside it in target probability."""

from __future__ import annotations

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor, arange, where

from csd_pipeline.checks import require_between, require_integer
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class GroupedRelaxation(Relaxation):
    """``f(x) = min(1, sum_C p / sum_C q)`` over the group ``C`` of ``x`` (grouped speculative decoding, 2508.07747).

    The group of a code is itself, the ``size // 2`` codes that rank just above it in target probability and as many
    just below, as far as there are any and their probability differs from its own by less than ``gap``. The accepted
    token is the draft itself. One sort per position; group sums are differences of running sums.

    Args:
        size: G, codes in a group besides the draft itself, >= 0; below 2 is exact. The papers use 3, 25, 35 and 50.
        gap: largest difference in probability within a group, exclusive, in (0, 1]; the release uses 0.15.
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``size`` no integer >= 0, or ``gap`` outside (0, 1].
    """

    source = "arXiv 2508.07747"
    departures = (
        "symmetric groups, cut at both ends of the ranking (the release takes 7 above and 6 below, and none at all at "
        "the lowest ranks); no filter by embedding distance; residual [p - q f]+ instead of [p - q]+, because f can be "
        "below min(1, p/q); ties rank by code; the support guard refuses drafts of target probability 0."
    )
    dominates_vanilla = False

    @register_to_config
    def __init__(self, size: int = 25, gap: float = 0.15, support_guard: bool = True, relax_fresh: bool = False):
        require_integer("size", size, 0)
        require_between("gap", gap, 0.0, 1.0)
        if gap == 0:
            raise ValueError("gap must be above 0, got 0; use size=0 for exact decoding")

    @property
    def exact(self) -> bool:
        return self.config.size < 2

    def accepted_mass(self, window: Window) -> Tensor:
        ranked, order = window.p.sort(dim=-1, descending=True, stable=True)
        first, last = self._groups(ranked)
        above = group_sums(ranked, first, last)
        below = group_sums(window.q.gather(-1, order), first, last)
        f = where(below > 0, above / below, 0.0).clamp(0.0, 1.0).to(window.q.dtype)
        return window.q * torch.zeros_like(f).scatter(-1, order, f)

    def _groups(self, ranked: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L, V] first rank and rank after the last of every rank's group; ``ranked`` falls along the last axis."""
        rank, half = arange(ranked.shape[-1], device=ranked.device), self.config.size // 2
        rising, gap = -ranked, self.config.gap
        first = torch.searchsorted(rising, rising - gap, right=True).clamp(max=rank).maximum(rank - half)
        last = torch.searchsorted(rising, rising + gap).clamp(min=rank + 1).minimum(rank + 1 + half)
        return first, last


def group_sums(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Sums of ``values[first:last]`` along the last axis, as differences of running sums.

    In float64 where the device has it: a small group at the end of a long ranking would drown in rounding.
    """
    precise = torch.float32 if values.device.type == "mps" else torch.float64
    running = torch.nn.functional.pad(values.to(precise).cumsum(-1), (1, 0))
    return (running.gather(-1, last) - running.gather(-1, first)).clamp_(min=0)
