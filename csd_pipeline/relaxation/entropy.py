"""CSD's rule: acceptance grows with the entropy of the target law (content-aware speculative decoding)."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, addcmul, minimum

from csd_pipeline.checks import require_at_least
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class EntropyRelaxation(Relaxation):
    """``f(x) = min(1, p(x)/q(x) + lam H(p))`` with the entropy ``H`` in nats (CSD, arXiv 2606.27829, algorithm 1).

    The paper's distribution-alignment filter is a component of its own: ``TVFilter(delta)``. Departures from the
    released loop, each switchable: tokens of target probability 0 stay impossible (``support_guard``), drafts that only
    just entered the window are not relaxed (``relax_fresh``). Probabilities are float32, the residual is exact.

    Args:
        lam: relaxation strength per nat, >= 0; 0 is exact. The paper uses 0.5.
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``lam`` negative or not finite.
    """

    source = "arXiv 2606.27829"
    departures = (
        "tokens of target probability 0 stay impossible (support_guard); fresh drafts are not relaxed; the paper's "
        "filter is TVFilter; after a fully accepted window a bonus token is drawn from the target law."
    )
    strength = "lam"

    @register_to_config
    def __init__(self, lam: float = 0.5, support_guard: bool = True, relax_fresh: bool = False):
        require_at_least("lam", lam, 0.0)

    @property
    def exact(self) -> bool:
        return self.config.lam == 0

    def accepted_mass(self, window: Window) -> Tensor:
        bonus = self.config.lam * window.entropy.unsqueeze(-1)
        return minimum(window.q, addcmul(window.p, bonus, window.q))
