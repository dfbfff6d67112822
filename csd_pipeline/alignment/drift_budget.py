"""A guaranteed bound on what a rule may spend at each position, in total variation from the target law."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, zeros_like

from csd_pipeline.checks import require_between
from csd_pipeline.decoding.window import Window

from .base import AlignmentFilter


class DriftBudget(AlignmentFilter):
    """Gate ``min(1, budget / drift)``: the law emitted at a position is within ``budget`` of the target law.

    The drift ``sum [q f - p]+`` is linear in the gate for a rule with ``f >= min(1, p/q)`` and convex with value 0 at
    gate 0 for any other, so the bound holds for every rule.

    Args:
        budget: largest total variation per position, in [0, 1]; 0 keeps everything exact.

    Raises:
        ValueError: ``budget`` outside [0, 1].
    """

    source = "closed form, docs/architecture.md"

    @register_to_config
    def __init__(self, budget: float = 0.1):
        require_between("budget", budget, 0.0, 1.0)

    @property
    def always_closed(self) -> bool:
        return self.config.budget == 0

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        if self.always_closed:
            return zeros_like(drift)
        return (self.config.budget / drift).clamp_(max=1.0)
