"""CSD's distribution-alignment filter: relax only where draft and target law are close in total variation."""

from diffusers.configuration_utils import register_to_config
from torch import Tensor

from csd_pipeline.checks import require_between
from csd_pipeline.decoding.window import Window

from .base import AlignmentFilter


class TVFilter(AlignmentFilter):
    """Gate 1 where ``TV(p, q) < delta`` (strictly), else 0 (CSD, arXiv 2606.27829, section on the alignment filter).

    Args:
        delta: threshold in [0, 1]; 0 keeps everything exact, 1 opens everywhere but for disjoint laws.

    Raises:
        ValueError: ``delta`` outside [0, 1].
    """

    source = "arXiv 2606.27829"

    @register_to_config
    def __init__(self, delta: float = 0.65):
        require_between("delta", delta, 0.0, 1.0)

    @property
    def always_closed(self) -> bool:
        return self.config.delta == 0

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        return (window.tv < self.config.delta).to(drift.dtype)
