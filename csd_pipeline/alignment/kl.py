"""Relax only where draft and target law are close in Kullback-Leibler divergence."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor, special

from csd_pipeline.checks import require_at_least, require_choice
from csd_pipeline.decoding.window import Window

from .base import AlignmentFilter


class KLFilter(AlignmentFilter):
    """Gate 1 where the divergence is below ``delta`` nats (strictly), else 0 (CSD, arXiv 2606.27829, ablation).

    Args:
        delta: threshold in nats, >= 0; 0 keeps everything exact. The paper's ablation uses 0.4.
        direction: ``"forward"`` is KL(p || q), ``"reverse"`` is KL(q || p), p being the target law.

    Raises:
        ValueError: ``delta`` negative, or an unknown direction.
    """

    source = "arXiv 2606.27829"

    @register_to_config
    def __init__(self, delta: float = 0.4, direction: str = "forward"):
        require_at_least("delta", delta, 0.0)
        require_choice("direction", direction, ("forward", "reverse"))

    @property
    def always_closed(self) -> bool:
        return self.config.delta == 0

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        a, b = (window.p, window.q) if self.config.direction == "forward" else (window.q, window.p)
        divergence = (special.xlogy(a, a) - special.xlogy(a, b)).sum(-1)  # 0 ln 0 is 0
        return (divergence < self.config.delta).to(drift.dtype)
