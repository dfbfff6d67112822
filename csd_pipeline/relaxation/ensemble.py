"""Verify against a fixed mixture of target and draft law instead of the target law alone."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, lerp

from csd_pipeline.checks import require_between
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class EnsembleRelaxation(Relaxation):
    """Plain acceptance for the law ``(1 - weight) p + weight q`` (static ensemble of DIVERSE, arXiv 2604.07622).

    So ``f(x) = min(1, (1 - weight) p(x)/q(x) + weight)``, the emitted law is the mixture itself, and the drift of a
    position is ``weight TV(p, q)``: the rule spends in proportion to the distance of the laws. The residual of the
    mixture is that of the target law.

    Args:
        weight: share of the draft law, in [0, 1]; 0 is exact, 1 accepts every draft. transformers calls ``1 - weight``
            ``assistant_ensemble_weight``.
        support_guard: never accept a token the target gives probability 0 (the mixture would).
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``weight`` outside [0, 1].
    """

    source = "arXiv 2604.07622; transformers, assistant_ensemble_weight"
    departures = (
        "the weight is the drafter's share, not the target's; tokens of target probability 0 stay impossible "
        "(support_guard); fresh drafts are not relaxed."
    )
    strength = "weight"

    @register_to_config
    def __init__(self, weight: float = 0.2, support_guard: bool = True, relax_fresh: bool = False):
        require_between("weight", weight, 0.0, 1.0)

    @property
    def exact(self) -> bool:
        return self.config.weight == 0

    def accepted_mass(self, window: Window) -> Tensor:
        # min(q, (1 - w) p + w q), written so that rounding never takes it below min(p, q)
        return lerp(window.plain_mass, window.q, self.config.weight)
