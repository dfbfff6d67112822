"""Chooses window and redraw of a call from the time of this target's forwards and the pictures drawn so far."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch
from torch import Tensor

from .decoding import RunPass, Warp
from .decoding.verification import relaxes
from .drafters import Drafter
from .drafters.window_choice import AUTO, WINDOWS, CommittedRecord, choose_window
from .recipe import describe
from .targets import PromptBatch

_ROUNDS = 3  # over all windows, after one that warms up; the fastest of each counts


class AutomaticDrafting:
    """What a pipeline remembers for ``"auto"``: seconds per forward and batch size, tokens per pass of every method.

    A window that was never used is tried as long as it may be the best one: within a few calls the choice stands. A
    redraw that was never used is taken to accept as often as the prior says, so that it is tried as soon as those that
    were used turn out to be worse. Forwards are timed in the way passes run: as written, compiled or captured.
    """

    def __init__(self):
        self._seconds: dict[tuple, dict[int, float]] = {}
        self._records: dict[tuple, CommittedRecord] = {}

    def choose(self, adapter, prompt: PromptBatch, warp: Warp, parts: dict, run_pass: RunPass) -> Drafter:
        """The drafter of ``parts`` with window and redraw chosen: most tokens per second.

        Where windows are to be chosen, the first call with a batch size and a way to run passes times a few forwards.
        Of redraws that promise as much, one whose pictures are those of plain decoding is preferred (``"gumbel"``, with
        an exact rule), else ``"coupled"``; ``"fresh"`` comes last.

        Args:
            adapter: of the target, which is on its device.
            prompt: of one batch.
            warp: its time is part of a pass.
            parts: ``drafter`` and the other parts of the call.
            run_pass: what will run the passes.
        """
        drafter, seconds = parts["drafter"], {parts["drafter"].window: 1.0}
        if drafter.config.window == AUTO:
            seconds = self._seconds_of(adapter, prompt, warp, run_pass)
        redraws = [drafter.config.redraw]
        if drafter.config.redraw == AUTO:
            relaxed = relaxes(parts["relaxation"], parts["alignment_filter"])
            redraws = ["coupled", "gumbel", "fresh"] if relaxed else ["gumbel", "coupled", "fresh"]
        best, chosen = 0.0, drafter
        for redraw in redraws:
            method = _method(adapter, parts | {"drafter": _with(drafter, max(seconds), redraw)}, warp)
            record = self._records.get(method, CommittedRecord())
            window = choose_window(seconds, record)
            speed = record.tokens_per_pass(window) / seconds[window]
            if speed > best:
                best, chosen = speed, _with(drafter, window, redraw)
        return chosen

    def _seconds_of(self, adapter, prompt: PromptBatch, warp: Warp, run_pass: RunPass) -> dict[int, float]:
        key = (id(adapter.model), str(prompt.ids.device), str(adapter.model.dtype), len(prompt.rows()[0]))
        key += (prompt.images, adapter.image_size, run_pass.kind)
        if key not in self._seconds:
            self._seconds[key] = time_forwards(adapter, prompt, warp, run_pass)
        return self._seconds[key]

    def learn(self, adapter, parts: dict, warp: Warp, traces: list) -> None:
        """Enter what was committed in the finished images of a call, drawn with the drafter :meth:`choose` gave."""
        total = adapter.grid.tokens
        record = self._records.setdefault(_method(adapter, parts, warp), CommittedRecord())
        for trace in traces:
            if trace.tokens == total:
                record.add(min(parts["drafter"].window, total), trace.nfe, total - trace.prefill_nfe)


def is_automatic(drafter: Drafter) -> bool:
    return AUTO in (drafter.config.get("window"), drafter.config.get("redraw"))


def _with(drafter: Drafter, window: int, redraw: str) -> Drafter:
    knobs = {name: value for name, value in describe(drafter).items() if not name.startswith("_")}
    return type(drafter)(**knobs | {"window": window, "redraw": redraw})


def time_forwards(adapter, prompt: PromptBatch, warp: Warp, run_pass: RunPass) -> dict[int, float]:
    """Seconds of one forward and its laws by window, in the middle of an image, on a session of its own."""
    total = adapter.grid.tokens
    windows = [window for window in WINDOWS if window <= total]
    session = adapter.open(prompt, windows[-1])
    session.prefill()
    middle = max(1, total // 2)
    # one reach of attention for all windows: the host's part, and a size less that a compiler has to follow
    session.reach(middle, windows[-1], run_pass.bucket)

    def forward(tokens: Tensor, committed: Tensor) -> Tensor:
        return warp.laws(session.step(tokens, committed), images=len(committed))

    forward = run_pass.alike(forward)
    committed = torch.full((prompt.images,), middle, device=prompt.ids.device)
    rounds = [[_time_forward(forward, committed, window) for window in windows] for _ in range(_ROUNDS + 1)]
    return dict(zip(windows, map(min, zip(*rounds[1:], strict=True)), strict=True))


def _time_forward(forward: Callable[[Tensor, Tensor], Tensor], committed: Tensor, window: int) -> float:
    tokens = torch.zeros(len(committed), window, dtype=torch.int64, device=committed.device)
    for _ in range(2):  # within an image the pass before is of the same shape, and so what is in the caches
        started = time.perf_counter()
        forward(tokens, committed).sum().item()  # the device has to be done
    return time.perf_counter() - started


def _method(adapter, parts: dict, warp: Warp) -> tuple:
    """Everything but the window that decides how far drafts are accepted."""
    described = {name: describe(part) for name, part in parts.items()}
    described["drafter"] = described["drafter"] | {"window": None}
    return (id(adapter.model), adapter.image_size, warp.settings, json.dumps(described, default=str))
