"""Chooses window and redraw of a call from the time of this target's forwards and the pictures drawn so far."""

from __future__ import annotations

import json
import time

import torch

from .decoding import Warp
from .decoding.verification import relaxes
from .drafters import Drafter
from .drafters.window_choice import AUTO, WINDOWS, AcceptanceRecord, choose_window, expected_tokens
from .recipe import describe
from .targets import PromptBatch

_FORWARDS = 3  # timed per window, after one that warms up, in turn with other windows; the fastest counts


class AutomaticDrafting:
    """What a pipeline remembers for ``"auto"``: seconds per forward and batch size, acceptance per method.

    A redraw that was never used is taken to accept as often as the prior says, so that it is tried as soon as those
    that were used turn out to be worse. A wider window also lets drafts ripen longer, so that what was accepted at one
    width only roughly tells what will be at another; the pictures drawn at the new one correct that.
    """

    def __init__(self):
        self._seconds: dict[tuple, dict[int, float]] = {}
        self._records: dict[str, AcceptanceRecord] = {}

    def choose(self, adapter, prompt: PromptBatch, warp: Warp, parts: dict) -> Drafter:
        """The drafter of ``parts`` with window and redraw chosen: most tokens per second.

        Where windows are to be chosen, the first call with a batch size times a few forwards. Of redraws that promise
        as much, one whose pictures are those of plain decoding is preferred (``"gumbel"``, with an exact rule), else
        ``"coupled"``; ``"fresh"`` comes last.

        Args:
            adapter: of the target, which is on its device.
            prompt: of one batch.
            warp: its time is part of a pass.
            parts: ``drafter`` and the other parts of the call.
        """
        drafter, seconds = parts["drafter"], {parts["drafter"].window: 1.0}
        if drafter.config.window == AUTO:
            seconds = self._seconds_of(adapter, prompt, warp)
        redraws = [drafter.config.redraw]
        if drafter.config.redraw == AUTO:
            relaxed = relaxes(parts["relaxation"], parts["alignment_filter"])
            redraws = ["coupled", "gumbel", "fresh"] if relaxed else ["gumbel", "coupled", "fresh"]
        best, chosen = 0.0, drafter
        for redraw in redraws:
            method = _method(parts | {"drafter": _with(drafter, max(seconds), redraw)}, warp)
            rates = self._records.get(method, AcceptanceRecord()).rates(max(seconds))
            window = choose_window(seconds, rates)
            speed = expected_tokens(window, rates) / seconds[window]
            if speed > best:
                best, chosen = speed, _with(drafter, window, redraw)
        return chosen

    def _seconds_of(self, adapter, prompt: PromptBatch, warp: Warp) -> dict[int, float]:
        key = (id(adapter.model), str(prompt.ids.device), str(adapter.model.dtype), len(prompt.rows()[0]))
        key += (prompt.images, adapter.image_size)
        if key not in self._seconds:
            self._seconds[key] = time_forwards(adapter, prompt, warp)
        return self._seconds[key]

    def learn(self, parts: dict, warp: Warp, traces: list, total: int) -> None:
        """Enter what was accepted in the finished images of a call, drawn with the drafter :meth:`choose` gave."""
        record = self._records.setdefault(_method(parts, warp), AcceptanceRecord())
        for trace in traces:
            if trace.tokens == total:
                record.add(trace.accepted, parts["drafter"].window, total)


def is_automatic(drafter: Drafter) -> bool:
    return AUTO in (drafter.config.get("window"), drafter.config.get("redraw"))


def _with(drafter: Drafter, window: int, redraw: str) -> Drafter:
    knobs = {name: value for name, value in describe(drafter).items() if not name.startswith("_")}
    return type(drafter)(**knobs | {"window": window, "redraw": redraw})


def time_forwards(adapter, prompt: PromptBatch, warp: Warp) -> dict[int, float]:
    """Seconds of one forward and its laws by window, in the middle of an image, on a session of its own."""
    total = adapter.grid.tokens
    windows = [window for window in WINDOWS if window <= total]
    session = adapter.open(prompt, windows[-1])
    session.prefill()
    middle = max(1, total // 2)
    committed = torch.full((prompt.images,), middle, device=prompt.ids.device)
    rounds = [
        [_time_forward(session, warp, committed, middle, window) for window in windows] for _ in range(_FORWARDS + 1)
    ]
    return dict(zip(windows, map(min, zip(*rounds[1:], strict=True)), strict=True))


def _time_forward(session, warp: Warp, committed: torch.Tensor, longest: int, window: int) -> float:
    tokens = torch.zeros(len(committed), window, dtype=torch.int64, device=committed.device)
    started = time.perf_counter()
    laws = warp.laws(session.step(tokens, committed, longest), images=len(committed))
    laws.sum().item()  # the device has to be done
    return time.perf_counter() - started


def _method(parts: dict, warp: Warp) -> str:
    """Everything but the window that decides how far drafts are accepted."""
    described = {name: describe(part) for name, part in parts.items()}
    described["drafter"] = described["drafter"] | {"window": None}
    return json.dumps([described, warp.guidance_scale, warp.temperature, warp.top_k, warp.top_p], default=str)
