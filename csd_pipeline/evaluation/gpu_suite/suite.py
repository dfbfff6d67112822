"""Runs the steps within the time there is, and puts the figures together."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import cache

import torch

from csd_pipeline.evaluation.machine import machine_facts

from .bandwidth import peak_bandwidth, used_bandwidth
from .figures import ONLY_ON_GPU, is_measured, not_measured, part
from .forward import COMPILED_WINDOWS, FORWARDS, WINDOWS
from .loops import add_tails
from .methods import WINDOW, methods
from .naive import over_ours
from .random_target import RandomTarget, random_target
from .shapes import Shape
from .steps import DTYPE, Step, compiling_steps, steps
from .time_budget import TimeBudget

SECONDS = 440  # leaves time for imports, so that a call takes less than 8 minutes
NOTES = (
    "Weights are random: numbers of passes and accepted drafts mean nothing here, compare seconds per pass.",
    "Agreement of tokens on random weights is not that of trained ones, whose laws are less flat.",
    "Bare forwards are timed in the middle of an image, passes over whole images.",
    "A naive pass reads numbers at every draft it tests, so its ratio depends on accepted_per_pass.",
)


def run_suite(
    shapes: list[Shape],
    device: torch.device | str,
    tell: Callable[[str], None] = lambda line: None,
    seconds: float = SECONDS,
) -> dict:
    """All figures, ready for JSON.

    Args:
        shapes: measured one after the other; steps that compile come last, for all of them.
        device: a CUDA device, or the CPU, where figures of a GPU are "not measured".
        tell: called with a line before every step.
        seconds: there are; steps that would end later are "not measured".
    """
    device = torch.device(device)
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        run = _Run(device, tell, TimeBudget(seconds))
        figures: dict[str, dict] = {shape.name: {} for shape in shapes}
        for shape, step in _plan(shapes):
            run.take(shape, step, figures[shape.name])
    machine = machine_facts(device)
    peak = peak_bandwidth(machine.get("gpu", ""))
    for of_shape in figures.values():
        _derive(of_shape, peak, on_gpu=device.type == "cuda")
    return {
        "suite": "gpu",
        "machine": machine | {"peak_bytes_per_second": peak},
        "settings": {
            "dtype": str(DTYPE).removeprefix("torch."),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "windows": list(WINDOWS),
            "compiled_windows": list(COMPILED_WINDOWS),
            "window_of_gumbel_and_csd": WINDOW,
        },
        "notes": list(NOTES),
        "seconds": run.budget.spent,
        "seconds_allowed": seconds,
        "failures": run.failures,
        "shapes": figures,
    }


def _plan(shapes: list[Shape]) -> Iterator[tuple[Shape, Step]]:
    for shape in shapes:
        yield from ((shape, step) for step in steps(shape))
    for shape in shapes:
        yield from ((shape, step) for step in compiling_steps())


class _Run:
    """Takes one step after the other."""

    def __init__(self, device: torch.device, tell: Callable[[str], None], budget: TimeBudget):
        self.device, self.tell, self.budget = device, tell, budget
        self.failures: list[str] = []
        self.target = cache(self._build)

    def _build(self, shape: Shape) -> RandomTarget:
        return random_target(shape, self.device, DTYPE)

    def take(self, shape: Shape, step: Step, figures: dict) -> None:
        *path, name = step.path
        for key in path:
            figures = figures.setdefault(key, {})
        figures[name] = self._figure(shape, step)

    def _figure(self, shape: Shape, step: Step):
        label = " ".join((shape.name, *step.path))
        if self.device.type != "cuda" and not step.on_cpu:
            return ONLY_ON_GPU
        if not self.budget.fits(step.kind, step.guess):
            return not_measured("no time left")
        started = self.budget.spent
        self.tell(f"{started:.0f} s: {label}")
        try:
            return step.work(self.target(shape))
        except Exception as error:  # whatever fails here, the figures of the other steps are worth having
            self.failures.append(f"{label}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
            return not_measured("it failed, see failures")
        finally:
            self.budget.note(step.kind, self.budget.spent - started)
            gc.collect()  # captures and caches of this step go before the next one is measured


def _derive(figures: dict, peak: float | None, on_gpu: bool) -> None:
    """What follows from several figures of a shape, added to them."""
    for way in FORWARDS:
        _add_ratios(figures["forward"][way])
    windows = {method: parts["drafter"].window for method, parts in methods().items()}
    add_tails(figures["loops"], figures["forward"], windows)
    figures["bandwidth"] = used_bandwidth(figures["bytes"], figures["loops"]["ar"], peak) if on_gpu else ONLY_ON_GPU
    figures["naive_over_ours"] = over_ours(figures["naive"], figures["loops"]["csd"])


def _add_ratios(forwards: dict | str) -> None:
    """``t(W) / t(1)`` beside every measured window."""
    if not is_measured(forwards):
        return
    one = part(forwards, "1", "seconds")
    for figure in forwards.values():
        if is_measured(figure):
            figure["ratio"] = figure["seconds"] / one if is_measured(one) else one
