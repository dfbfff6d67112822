"""The ways a pass can be run, and the bare forward each is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from csd_pipeline.decoding import CapturedPass, CompiledPass, RunPass


@dataclass(frozen=True)
class Loop:
    """One way.

    Args:
        make: what to hand to ``decode`` as ``run_pass``.
        forward: name of the way a bare forward is run (:mod:`.forward`) that this pass is compared with.
        warm_up: images drawn before any is timed.
        guess: seconds that timing one method takes, as long as nothing is known.
        on_cpu: there too; the others are only worth their time on a GPU.
    """

    make: Callable[[], RunPass]
    forward: str
    warm_up: int
    guess: float
    on_cpu: bool = False


LOOPS = {
    "eager": Loop(RunPass, "eager", warm_up=1, guess=30, on_cpu=True),
    # two: the second pass of every shape is captured, which may be one of the second image
    "captured": Loop(CapturedPass, "graph", warm_up=2, guess=15),
    "compiled": Loop(CompiledPass, "compiled", warm_up=1, guess=120),
}
COMPILING = "compiled"
