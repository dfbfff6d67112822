"""Seconds of a block and of a session's forwards, on the host or on a GPU."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from csd_pipeline.decoding import RunPass, WatchedPass
from csd_pipeline.decoding.compiled_pass import CompiledFunction
from csd_pipeline.decoding.tree import TreeShape


class Clock:
    """Wall and process seconds of a block, the device synchronised at both ends."""

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.wall = self.cpu = 0.0

    def __enter__(self) -> Clock:
        self._started = self._now()
        return self

    def __exit__(self, *_) -> None:
        wall, cpu = self._now()
        self.wall, self.cpu = self.wall + wall - self._started[0], self.cpu + cpu - self._started[1]

    def _now(self) -> tuple[float, float]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter(), time.process_time()


class CompiledForwards:
    """Times bare forwards of a target, compiled, beside the compiled passes they are a part of.

    What is committed does not matter to a forward's time, nor do drafts: every one runs on the session of the image
    that is being drawn, over the slots the pass then writes anew.

    Args:
        device: they run on.
        options: of torch.compile, those of the passes.
    """

    def __init__(self, device: torch.device | str, options: dict):
        self.device, self.options, self._compiled = device, options, {}

    def watch(self, run_pass) -> tuple[RunPass, Clock, Clock]:
        """``run_pass`` with a compiled forward before every pass, the clock of these forwards, and that of all that is
        done for them: preparing them is no part of the loop."""
        clock, aside, forwards = Clock(self.device), Clock(self.device), self

        class Beside(WatchedPass):
            def __call__(self, run, length: int) -> Tensor:
                with aside:
                    forwards._run(run, length, clock)
                return super().__call__(run, length)

        return Beside(run_pass), clock, aside

    def _run(self, run, length: int, clock: Clock) -> None:
        tokens = run.state.tokens.new_zeros(run.images, length + 1)
        committed = run.state.committed.clone()
        key = (length, run.images)
        if key not in self._compiled:
            self._compiled[key] = CompiledFunction(_forward, self.options)
        with clock:
            self._compiled[key](run, (run.limit,), run.session, tokens, committed)


def _forward(session, tokens: Tensor, committed: Tensor) -> Tensor:
    return session.step(tokens, committed)


class ForwardWatch:
    """Watches ``prefill`` and ``step`` of a session that decodes one image.

    On a GPU the forwards are timed by events, since waiting for each of them would slow down the loop that is measured.

    Args:
        session: of one image.
        device: it is on.
        prefill_only: leave ``step`` alone, as a compiled pass traces it.

    Attributes:
        drafted: drafts of every forward after the prefill, in order, without the other candidates of a tree; its length
            is the NFE, counted at the call.
    """

    def __init__(self, session, device: torch.device | str, prefill_only: bool = False):
        self.device, self.drafted = torch.device(device), []
        self._prefill, self._steps = [], []
        prefill, step = session.prefill, session.step
        session.prefill = lambda: self._timed(self._prefill, prefill)
        if not prefill_only:
            session.step = lambda tokens, *rest: self._watched_step(step, tokens, *rest)

    @property
    def nfe(self) -> int:
        return len(self.drafted)

    @property
    def prefill_wall(self) -> float:
        return self._seconds(self._prefill)[0]

    @property
    def wall(self) -> float:
        """Seconds of the forwards after the prefill."""
        return self._seconds(self._steps)[0]

    @property
    def cpu(self) -> float:
        """Process seconds of the forwards after the prefill; on a GPU those of launching them."""
        return self._seconds(self._steps)[1]

    def _watched_step(self, step, tokens, *rest):
        tree = next((value for value in rest if isinstance(value, TreeShape)), None)
        self.drafted.append(tokens.shape[1] - 1 if tree is None else tree.length)
        return self._timed(self._steps, step, tokens, *rest)

    def _timed(self, spans: list, call, *arguments):
        before = self._mark()
        result = call(*arguments)
        spans.append((before, self._mark()))
        return result

    def _mark(self):
        event = None
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return time.perf_counter(), time.process_time(), event

    def _seconds(self, spans: list) -> tuple[float, float]:
        cpu = sum(end[1] - start[1] for start, end in spans)
        if self.device.type != "cuda":
            return sum(end[0] - start[0] for start, end in spans), cpu
        torch.cuda.synchronize(self.device)
        return sum(start[2].elapsed_time(end[2]) for start, end in spans) / 1000, cpu
