"""The ways of a GPU on a CPU: captures on tape, the compiler without its back end, so that every step can run."""

from functools import partial

import torch
from helpers_tape import Tape, captured

from csd_pipeline.decoding import CompiledPass
from csd_pipeline.evaluation.gpu_suite.forward import FORWARDS, compiled
from csd_pipeline.evaluation.gpu_suite.loop_table import LOOPS, Loop


class TapedCall:
    """As :class:`csd_pipeline.evaluation.gpu_suite.cuda_graph.CapturedCall`."""

    def __init__(self, call):
        self.call = call  # the tape keeps the tensors it reads as little as a graph does
        call()
        self.tape = Tape()
        self.tape.record(call)

    def __call__(self):
        self.tape.replay()


def put_in_place(monkeypatch) -> list[str]:
    """Returns the modes torch's watch for waits is set to, in order."""
    monkeypatch.setitem(FORWARDS, "graph", TapedCall)
    monkeypatch.setitem(FORWARDS, "compiled", partial(compiled, backend="eager"))
    monkeypatch.setitem(LOOPS, "captured", Loop(captured, "graph", warm_up=2, guess=1, on_cpu=True))
    compiled_pass = partial(CompiledPass, backend="eager")
    monkeypatch.setitem(LOOPS, "compiled", Loop(compiled_pass, "compiled", warm_up=1, guess=1, on_cpu=True))
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    return modes
