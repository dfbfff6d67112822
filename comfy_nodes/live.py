"""What is seen while a picture is drawn: progress in tokens, a growing picture, events for the plot; and cancelling."""

from __future__ import annotations

import time
from collections.abc import Callable

EVENT = "csd.pass"
_EVENTS_EVERY = 0.1  # seconds


class LiveRun:
    """``callback_on_step_end`` of a pipeline call.

    Args:
        total: tokens of the whole batch.
        check_cancelled: raises the host's own exception when the user cancelled; whatever it raises passes through.
        show_progress: called with (tokens so far, total, picture or None) after every pass.
        preview: called with (token ids [B, N], counts [B]); answers a PIL picture when a new one is due, else None.
        send: called with a JSON-ready dict at most ten times a second: ``first`` (of the run), ``accepted`` (tokens per
            image of each pass since the last event), ``tokens``, ``total``, ``drift`` (total variation spent per
            token so far), ``done``.
        clock: seconds, for tests.
    """

    tensors = ("latents", "counts", "drift")

    def __init__(
        self,
        total: int,
        check_cancelled: Callable[[], None],
        show_progress: Callable,
        preview: Callable,
        send: Callable[[dict], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total, self.check_cancelled, self.show_progress = total, check_cancelled, show_progress
        self.preview, self.send, self.clock = preview, send, clock
        self.counts: list[int] | None = None
        self.accepted: list[float] = []
        self.sent: float | None = None

    def __call__(self, pipe, step: int, timestep: int, tensors: dict) -> dict:
        self.check_cancelled()
        counts = tensors["counts"].tolist()
        self._count(counts)
        done = sum(counts) >= self.total
        self.show_progress(sum(counts), self.total, self.preview(tensors["latents"], counts))
        if done or self.sent is None or self.clock() - self.sent >= _EVENTS_EVERY:
            self._send(counts, tensors["drift"], done)
        return {}

    def _count(self, counts: list[int]) -> None:
        """Tokens per image of this pass, over the images it was about; the first pass is the prompt's."""
        if self.counts is not None:
            gains = [new - old for new, old in zip(counts, self.counts, strict=True) if new > old]
            self.accepted.append(round(sum(gains) / max(len(gains), 1), 2))
        self.counts = counts

    def _send(self, counts: list[int], drift, done: bool) -> None:
        tokens = sum(counts)
        spent = float(drift.sum()) / max(tokens, 1)
        event = {"first": self.sent is None, "accepted": self.accepted, "tokens": tokens, "total": self.total}
        self.send(event | {"drift": round(spent, 6), "done": done})
        self.accepted, self.sent = [], self.clock()
