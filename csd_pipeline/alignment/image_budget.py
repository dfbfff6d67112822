"""A quality dial: one drift budget for the whole image, spent where it buys most acceptance."""

from __future__ import annotations

from diffusers.configuration_utils import register_to_config
from torch import Tensor, where

from csd_pipeline.checks import require_at_least
from csd_pipeline.decoding.window import Window

from .base import AlignmentFilter

_NEVER = 1e-6  # an acceptance probability below this ends a run of drafts


class ImageBudget(AlignmentFilter):
    """Spend at most ``budget`` of total variation in an image, on the drafts that bring most tokens for it.

    Acceptance gained equals drift spent at every draft, whatever the rule (docs/architecture.md). So only the place
    matters: an accepted draft brings itself and the run of drafts behind it that plain decoding would then accept,

        ``worth_i = 1 + f_{i+1} + f_{i+1} f_{i+2} + ...``,  ``f = min(1, p/q)`` at the drafts,

    tokens per unit of drift. A draft is relaxed where ``worth_i * texture_i`` reaches a price that keeps the spending
    in step with the picture, ``price = exp(urgency * (spent/budget - committed/N))``: behind schedule everything is
    relaxed, ahead of it only the bargains. Early drafts come first, since a later one is only reached through them.
    ``texture_i = 1 - exp(-H_i / detail)`` with the entropy ``H_i`` in nats holds back where the target law is sharp,
    that is in outlines and small detail. The last unit is cut so that the budget is never exceeded, for any rule.

    Args:
        budget: total variation per image, >= 0; 0 keeps everything exact.
        urgency: how sharply the price follows the schedule, >= 0; 0 spends first come, first served.
        detail: entropy in nats up to which positions are held back, >= 0; 0 treats all alike.

    Raises:
        ValueError: a knob negative or not finite.
    """

    source = "docs/architecture.md"
    uses_ledger = True

    @register_to_config
    def __init__(self, budget: float = 2.0, urgency: float = 10.0, detail: float = 0.0):
        require_at_least("budget", budget, 0.0)
        require_at_least("urgency", urgency, 0.0)
        require_at_least("detail", detail, 0.0)

    @property
    def always_closed(self) -> bool:
        return self.config.budget == 0

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        budget = self.config.budget
        worth = run_lengths(where(window.valid, window.vanilla, 0.0))
        if self.config.detail > 0:
            worth = worth * (1 - (-window.entropy / self.config.detail).exp())
        ahead = window.spent / budget - window.start / window.total
        wanted = where(worth >= (self.config.urgency * ahead).exp()[:, None], drift, 0.0)
        room = (budget - window.spent)[:, None] - (wanted.cumsum(-1) - wanted)
        return where(wanted > 0, (room / drift).clamp(0.0, 1.0), (drift == 0).to(drift.dtype))


def run_lengths(acceptance: Tensor) -> Tensor:
    """[B, L] expected tokens won by accepting draft i: 1 + the drafts behind it, accepted one after the other.

    Args:
        acceptance: [B, L] probability of accepting each draft once it is reached.
    """
    length = acceptance.shape[-1]
    total = acceptance.clamp(min=_NEVER).log().cumsum(-1)
    runs = (total[:, None, :] - total[:, :, None]).exp()  # product of the acceptances behind i, up to j
    behind = runs.new_ones(length, length).triu()
    return (runs * behind).sum(-1)
