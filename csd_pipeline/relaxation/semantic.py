"""SJD-SV's rule: runs of drafts whose target probability rises are judged by the end of the run."""

from __future__ import annotations

import math

from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn, ones_like, where

from csd_pipeline.checks import require_between, require_integer
from csd_pipeline.decoding.window import Window

from .joint import JointRelaxation, ends, same_group


class SemanticRelaxation(JointRelaxation):
    """Runs of drafts with non-decreasing target probability pass or fall together (SJD-SV, arXiv 2609.13245).

    With ``s = p(draft)`` and ``r = p/q`` at the drafts, a run ends where ``s`` falls. Its confident suffix starts at
    the last slot ``g`` from which on the drafts hold at least the share ``alpha`` of the run's sum of ``s``. The run is
    accepted up to ``e`` with probability ``min(1, r_g ... r_e)``, tried from its end back to ``g`` with one uniform;
    the drafts before ``g`` are accepted unseen. After a failure the next token comes from ``[p - q]+`` there.

    Args:
        alpha: share of a run's target probability its confident suffix must hold, in (0, 1]; the paper's default is
            0.8. Smaller is faster and further from the target.
        longest: most drafts in a run, >= 0; 1 is exact, 0 sets no limit as in the paper.
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``alpha`` outside (0, 1], or ``longest`` no integer >= 0.
    """

    source = "arXiv 2609.13245"
    departures = (
        "the steps of the fall-back share one uniform (the paper leaves that open), written as one test per draft of "
        "the same law; runs can be limited in length; drafts fresh in the window are judged by themselves; the support "
        "guard refuses drafts of target probability 0."
    )

    @register_to_config
    def __init__(self, alpha: float = 0.8, longest: int = 0, support_guard: bool = True, relax_fresh: bool = False):
        require_between("alpha", alpha, 0.0, 1.0)
        if alpha == 0:
            raise ValueError("alpha must be above 0, got 0; use longest=1 for exact decoding")
        require_integer("longest", longest, 0)

    @property
    def exact(self) -> bool:
        return self.config.longest == 1

    def group_starts(self, window: Window, alone: Tensor) -> Tensor:
        s = window.p_draft
        starts = nn.functional.pad((s[:, 1:] < s[:, :-1]) | alone[:, 1:] | alone[:, :-1], (1, 0), value=True)
        if self.config.longest:
            place = ones_like(window.drafts).cumsum(-1)
            first = where(starts, place, 0).cummax(-1).values
            starts = starts | ((place - first) % self.config.longest == 0)
        return starts

    def log_survival(self, window: Window, group: Tensor) -> Tensor:
        s, together = window.p_draft, same_group(group)
        until = together.tril()
        total = _sums(s, together)
        confident = (_sums(s, until) > (1 - self.config.alpha) * total) | ends(group)  # g and what follows it
        log_ratio = where(confident, (s / window.q_draft).log(), 0.0)
        joint = _sums(log_ratio, until).clamp(max=0.0)  # ln min(1, r_g ... r_j), and 0 before g
        return where(together.triu(), joint[:, None, :], -math.inf).amax(-1)


def _sums(values: Tensor, mask: Tensor) -> Tensor:
    """[B, L] sums over j of values [B, L] at the j where ``mask`` [B, L, L] holds at (i, j)."""
    return where(mask, values[:, None, :], 0.0).sum(-1)
