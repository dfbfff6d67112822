"""Seconds the suite may take: what no longer fits is left out, by what the same kind of work took before."""

from __future__ import annotations

import time
from collections.abc import Callable

_MARGIN = 1.3  # over the longest of a kind: the next shape may be larger


class TimeBudget:
    """A clock that starts now.

    Args:
        seconds: all work together.
        now: seconds of any clock.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic):
        self.seconds, self.now, self.started = seconds, now, now()
        self._longest: dict[str, float] = {}

    @property
    def spent(self) -> float:
        return self.now() - self.started

    def fits(self, kind: str, guess: float) -> bool:
        """Whether work of this kind would end in time: in ``guess`` seconds, or 1.3 times the longest seen if more."""
        return self.spent + max(guess, _MARGIN * self._longest.get(kind, 0.0)) <= self.seconds

    def note(self, kind: str, seconds: float) -> None:
        """Work of this kind took so long."""
        self._longest[kind] = max(seconds, self._longest.get(kind, 0.0))
