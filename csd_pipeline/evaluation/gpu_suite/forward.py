"""The bare forward of a window of tokens: t(W) over t(1), eager, as a CUDA graph, compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch

from csd_pipeline.decoding import CompiledPass

from .cuda_graph import CapturedCall
from .random_target import RandomTarget
from .timing import time_call

WINDOWS = (1, 2, 4, 8, 16, 32, 64)
COMPILED_WINDOWS = (1, 16)  # every window is compiled anew, which takes up to a minute


def as_written(call: Callable) -> Callable:
    return call


def compiled(call: Callable, **options) -> Callable:
    """Traced whole, for this very window, and called as compiled passes are."""
    return CompiledPass(dynamic=False, **options).alike(call)


# how a bare forward is run; each takes a call and returns one that does the same
FORWARDS: dict[str, Callable[[Callable], Callable]] = {
    "eager": as_written,
    "graph": CapturedCall,
    "compiled": compiled,
}


class BareForward:
    """Forwards of one session that stands in the middle of an image; both guidance rows, static cache, own mask."""

    def __init__(self, target: RandomTarget):
        self.session, self.position = target.adapter.open(target.prompt, max(WINDOWS)), target.tokens // 2
        self.codes, self.device = target.shape.codes, target.device
        self.session.prefill()

    def of(self, window: int) -> Callable[[], torch.Tensor]:
        """The forward of ``window`` tokens, [R, window, V] logits; to be used before the next one is asked for."""
        self.session.reach(self.position, window)  # the host's part: a captured forward must not do it
        tokens = (torch.arange(window, device=self.device) % self.codes)[None]
        committed = torch.full((1,), self.position, device=self.device)
        return lambda: self.session.step(tokens, committed)


@torch.no_grad()
def time_forwards(target: RandomTarget, prepare: Callable[[Callable], Callable], windows: Iterable[int]) -> dict:
    """Seconds of one forward by window (:func:`.time_call`), and seconds it took to prepare it, the first call
    included."""
    forward, figures = BareForward(target), {}
    for window in windows:
        started = time.perf_counter()
        call = prepare(forward.of(window))
        call()
        if target.device.type == "cuda":
            torch.cuda.synchronize(target.device)
        preparation = time.perf_counter() - started
        figures[str(window)] = time_call(call, target.device) | {"preparation_seconds": preparation}
    return figures
