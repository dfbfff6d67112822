"""Multiply the ratio of the laws: every draft is accepted a fixed factor more willingly."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, minimum

from csd_pipeline.checks import require_at_least
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class AmplifyRelaxation(Relaxation):
    """``f(x) = min(1, factor p(x)/q(x))`` ("Amplify" of CSD, arXiv 2606.27829; UniformRSD of Cool-SD, 2601.09212).

    A token of target probability 0 is never accepted, with or without ``support_guard``. ``AnnealedRelaxation`` lets
    the factor fall along the window and below 1.

    Args:
        factor: >= 1; 1 is exact. CSD's comparison uses 1.3 (Lumina-mGPT-7B) and 4 (Janus-Pro-7B).
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``factor`` below 1 or not finite.
    """

    source = "arXiv 2606.27829, 2601.09212"
    departures = "fresh drafts are not relaxed unless relax_fresh; laws are float32 and never floored."
    strength = "factor"

    @register_to_config
    def __init__(self, factor: float = 1.3, support_guard: bool = True, relax_fresh: bool = False):
        require_at_least("factor", factor, 1.0)

    @property
    def exact(self) -> bool:
        return self.config.factor == 1

    def accepted_mass(self, window: Window) -> Tensor:
        return minimum(window.q, self.config.factor * window.p)
