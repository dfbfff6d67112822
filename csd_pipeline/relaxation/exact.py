"""No relaxation: plain speculative decoding, the output law is the target law."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, minimum

from csd_pipeline.decoding.window import Window

from .base import Relaxation


class Exact(Relaxation):
    """Accept a draft with probability ``min(1, p/q)`` (Leviathan et al., arXiv 2211.17192, algorithm 1).

    Args:
        support_guard: accepted for the sake of interchange; an exact rule emits no impossible token.
        relax_fresh: accepted for the sake of interchange; an exact rule may judge any draft.
    """

    source = "arXiv 2211.17192"
    departures = "laws are float32; where p = q leaves no residual, p itself is drawn from."
    exact = True

    @register_to_config
    def __init__(self, support_guard: bool = True, relax_fresh: bool = False):
        pass

    def accepted_mass(self, window: Window) -> Tensor:
        return minimum(window.p, window.q)
