"""The steps of the suite: where the figure goes, about how long it takes, what makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from .agreement import agreement
from .bandwidth import count_bytes
from .figures import not_measured
from .forward import COMPILED_WINDOWS, FORWARDS, WINDOWS, time_forwards
from .image_memory import peak_bytes
from .loop_table import COMPILING, LOOPS, Loop
from .loops import time_loop
from .methods import methods
from .naive import time_naive
from .random_target import RandomTarget, random_target
from .shapes import Shape
from .syncs import find_syncs

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Step:
    """One figure.

    Args:
        path: keys that lead to it in the figures of its shape.
        work: makes it from the target.
        kind: work of one kind takes about the same time.
        guess: seconds, as long as nothing of that kind was seen.
        on_cpu: there too; otherwise it is measured on a GPU only.
    """

    path: tuple[str, ...]
    work: Callable[[RandomTarget], object]
    kind: str
    guess: float
    on_cpu: bool = False


def steps(shape: Shape) -> Iterator[Step]:
    """All that need no compiler, what matters most first."""
    yield Step(("parameters",), lambda target: target.model.num_parameters(), "build", 20, on_cpu=True)
    for way in FORWARDS:
        if way != COMPILING:
            yield Step(("forward", way), _forwards(way, WINDOWS), f"forward {way}", 15, on_cpu=way == "eager")
    yield Step(("bytes",), count_bytes, "bytes", 1, on_cpu=True)
    for name in LOOPS:
        if name != COMPILING:
            yield from _loop_steps(name)
    yield Step(("naive",), lambda target: time_naive(target, methods()["csd"]), "naive", 30, on_cpu=True)
    yield Step(("agreement", "bfloat16"), agreement, "agreement", 20, on_cpu=True)
    yield Step(("agreement", "float32"), _agreement_in_float32, "agreement", 20, on_cpu=True)
    for method in ("ar", "csd"):
        yield Step(("memory", method), _memory(method), "memory", 10)
    for name in LOOPS:
        if name != COMPILING:
            for method in methods():
                yield Step(("syncs", method, name), _syncs(method, name), "syncs", 5)


def compiling_steps() -> Iterator[Step]:
    """Those that wait for a compiler, last: they take most of the time."""
    for window in COMPILED_WINDOWS:
        yield Step(("forward", COMPILING, str(window)), _compiled_forward(window), "compile a forward", 75)
    yield from _loop_steps(COMPILING)


def _forwards(way: str, windows: tuple[int, ...]) -> Callable:
    return lambda target: time_forwards(target, FORWARDS[way], windows)


def _compiled_forward(window: int) -> Callable:
    return lambda target: time_forwards(target, FORWARDS[COMPILING], [window])[str(window)]


def _loop_steps(name: str) -> Iterator[Step]:
    loop = LOOPS[name]
    for method, parts in methods().items():
        yield Step(("loops", method, name), _loop(parts, loop), f"loop {name}", loop.guess, loop.on_cpu)


def _loop(parts: dict, loop: Loop) -> Callable:
    return lambda target: time_loop(target, parts, loop)


def _memory(method: str) -> Callable:
    return lambda target: peak_bytes(target, methods()[method])


def _syncs(method: str, name: str) -> Callable:
    return lambda target: find_syncs(target, methods()[method], LOOPS[name].make())


def _agreement_in_float32(target: RandomTarget):
    if not target.shape.float32_too:
        return not_measured("float32 is compared on a smaller shape only")
    return agreement(random_target(target.shape, target.device, torch.float32))
