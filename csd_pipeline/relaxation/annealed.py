"""A multiplicative relaxation that cools down along the window: generous to early drafts, strict to late ones."""

import math

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from csd_pipeline.checks import require_at_least, require_choice, require_positive
from csd_pipeline.decoding.window import Window

from .base import Relaxation

SCHEDULES = ("exponential", "linear")
NORMALISERS = ("mean", "geomean", "first")


class AnnealedRelaxation(Relaxation):
    """``f_i(x) = min(1, omega_i p(x)/q(x))`` with ``omega_i`` falling along the window (Cool-SD, arXiv 2601.09212).

    ``omega_i = delta exp(-nu i - mu)``, or linear in the draft index, ``i = 1..L`` with L the drafts an image really
    has in this pass. Where ``omega_i`` > 1 a draft is relaxed; where it is < 1 it is accepted *less* often than plain
    decoding would, which stays exact only with the general residual ``[p - q f]+`` (the plain one would add drift for
    nothing). ``min_omega=1`` lifts those late factors to 1: more tokens per pass, no more drift at any draft.

    Args:
        delta: relaxation budget > 0: the mean, geometric mean or first of the ``omega_i``, see ``normaliser``. The
            paper uses 1.1 (quality) to 4, 2 for speed.
        nu: decay per draft >= 0 of the exponential schedule; 0 gives every draft the same factor. The paper uses 0.7.
        schedule: ``"exponential"`` or ``"linear"`` (``omega_i`` proportional to ``L + 1 - i``; no ``nu``).
        normaliser: what ``delta`` is: ``"mean"``, ``"geomean"`` or ``"first"`` of the factors.
        min_omega: no factor falls below this, >= 0; 0 is the paper's rule, 1 never accepts less than plain decoding.
        support_guard: never accept a token the target gives probability 0 (no factor ever does).
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``delta`` not above 0, ``nu`` or ``min_omega`` negative, an unknown ``schedule`` or ``normaliser``.
    """

    source = "arXiv 2601.09212"
    departures = (
        "min_omega is 1, the paper's rule has 0; no code is public and its normaliser and linear schedule could not be "
        "checked: mean-normalised here, selectable; chains of drafts, not trees; fresh drafts are not relaxed."
    )
    strength = "delta"

    @register_to_config
    def __init__(
        self,
        delta: float = 1.1,
        nu: float = 0.7,
        schedule: str = "exponential",
        normaliser: str = "mean",
        min_omega: float = 1.0,
        support_guard: bool = True,
        relax_fresh: bool = False,
    ):
        require_positive("delta", delta)
        require_at_least("nu", nu, 0.0)
        require_choice("schedule", schedule, SCHEDULES)
        require_choice("normaliser", normaliser, NORMALISERS)
        require_at_least("min_omega", min_omega, 0.0)

    @property
    def _level(self) -> bool:
        return self.config.schedule == "exponential" and self.config.nu == 0

    @property
    def exact(self) -> bool:
        """No factor above 1 in a window of any length."""
        first = 1.0  # supremum of omega_1 / delta over all window lengths
        if self.config.normaliser != "first" and not self._level:
            bounds = {"mean": 2.0, "geomean": math.e} if self.config.schedule == "linear" else {}
            first = bounds.get(self.config.normaliser, math.inf)
        return max(self.config.delta * first, self.config.min_omega) <= 1

    @property
    def plain(self) -> bool:
        return self.exact and (self.config.min_omega == 1 or (self._level and self.config.delta == 1))

    @property
    def dominates_vanilla(self) -> bool:
        return self.config.min_omega >= 1 or (self._level and self.config.delta >= 1)

    def omega(self, window: Window) -> Tensor:
        """[B, L] factors; 1 at padding. Every image is normalised over its own drafts, whatever the batch."""
        slot, count = torch.arange(window.drafts.shape[1], device=window.p.device), window.lengths[:, None]
        if self.config.schedule == "linear":
            log_weight = (count - slot).clamp(min=1).to(window.p.dtype).log()
        else:
            log_weight = (-self.config.nu * slot.to(window.p.dtype)).expand_as(window.valid)
        if self.config.normaliser == "mean":
            log_scale = log_weight.masked_fill(~window.valid, -torch.inf).logsumexp(-1, keepdim=True) - count.log()
        elif self.config.normaliser == "geomean":
            log_scale = torch.where(window.valid, log_weight, 0.0).sum(-1, keepdim=True) / count
        else:
            log_scale = log_weight[:, :1]
        largest = torch.finfo(log_weight.dtype).max  # a steep geometric mean overflows, and inf * 0 is no number
        omega = (self.config.delta * (log_weight - log_scale).exp()).clamp(self.config.min_omega, largest)
        return torch.where(window.valid, omega, 1.0)

    def accepted_mass(self, window: Window) -> Tensor:
        return torch.minimum(window.q, self.omega(window).unsqueeze(-1) * window.p)
