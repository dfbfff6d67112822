"""Any rule, annealed along the window: full strength at the first draft, less at later ones."""

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from csd_pipeline.checks import require_at_least, require_between, require_choice
from csd_pipeline.decoding.window import Window

from .base import AlignmentFilter

SCHEDULES = ("exponential", "linear")


class AnnealingFilter(AlignmentFilter):
    """Gate falling with the draft index (the idea of Cool-SD, arXiv 2601.09212, made a modifier of every rule).

    ``gate_i = floor + (1 - floor) s_i`` with ``s_i = exp(-nu i)``, or ``1 - i/L`` (linear), for the drafts
    ``i = 0..L-1`` an image really has in this pass. It scales what the rule adds to plain acceptance,
    ``f_i = f_van + gate_i (f_rule - f_van)``, so the drift of a draft is that of the rule times ``gate_i`` (at most
    that, for a rule that is below ``f_van`` somewhere); an exact rule stays exact, impossible tokens stay impossible
    and a drift budget still holds.

    Args:
        nu: decay per draft >= 0 of the exponential schedule; 0 changes nothing. Cool-SD uses 0.7.
        schedule: ``"exponential"`` or ``"linear"`` (no ``nu``).
        floor: the gate never falls below this, in [0, 1].

    Raises:
        ValueError: ``nu`` negative, ``floor`` outside [0, 1], an unknown ``schedule``.
    """

    source = "after arXiv 2601.09212"

    @register_to_config
    def __init__(self, nu: float = 0.7, schedule: str = "exponential", floor: float = 0.0):
        require_at_least("nu", nu, 0.0)
        require_choice("schedule", schedule, SCHEDULES)
        require_between("floor", floor, 0.0, 1.0)

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        slot = torch.arange(drift.shape[1], device=drift.device, dtype=drift.dtype)
        if self.config.schedule == "linear":
            share = (1 - slot / window.lengths[:, None].clamp(min=1)).clamp(min=0)
        else:
            share = (-self.config.nu * slot).exp().expand_as(drift)
        return share.lerp(torch.ones_like(share), self.config.floor)
