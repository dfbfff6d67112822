"""Add a constant to the ratio of the laws: every draft gets the same bonus."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, minimum

from csd_pipeline.checks import require_at_least
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class AdditionRelaxation(Relaxation):
    """``f(x) = min(1, p(x)/q(x) + bonus)`` (baseline "Addition" of CSD, arXiv 2606.27829).

    Args:
        bonus: >= 0; 0 is exact, from 1 on every draft is accepted. CSD's comparison uses 0.1 (Lumina-mGPT-7B) and 0.4
            (Janus-Pro-7B).
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``bonus`` negative or not finite.
    """

    source = "arXiv 2606.27829"
    departures = "tokens of target probability 0 stay impossible (support_guard); fresh drafts are not relaxed."
    strength = "bonus"

    @register_to_config
    def __init__(self, bonus: float = 0.1, support_guard: bool = True, relax_fresh: bool = False):
        require_at_least("bonus", bonus, 0.0)

    @property
    def exact(self) -> bool:
        return self.config.bonus == 0

    def accepted_mass(self, window: Window) -> Tensor:
        return minimum(window.q, window.p + self.config.bonus * window.q)
