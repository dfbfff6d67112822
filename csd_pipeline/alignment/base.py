"""What an alignment filter must provide: a gate in [0, 1] per draft position, 0 keeps the position exact."""

from __future__ import annotations

from diffusers import ConfigMixin, SchedulerMixin
from torch import Tensor

from csd_pipeline.decoding.window import Window


class AlignmentFilter(SchedulerMixin, ConfigMixin):
    """Decides where a relaxation may act. Filters combine with ``&`` (the smaller gate wins)."""

    config_name = "filter_config.json"
    order = 1
    source: str = ""
    uses_ledger = False  # reads window.spent, the drift an image has spent so far

    @property
    def always_closed(self) -> bool:
        """True when no position can ever be relaxed, i.e. decoding is exact."""
        return False

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        """[B, L] gates in [0, 1].

        Args:
            window: laws and drafts of this pass.
            drift: [B, L] total variation the rule would spend at each position with gate 1.
        """
        raise NotImplementedError

    def __and__(self, other: AlignmentFilter) -> AlignmentFilter:
        from .combined import CombinedFilter

        return CombinedFilter.of(self, other)
