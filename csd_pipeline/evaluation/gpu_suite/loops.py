"""Whole images in every loop: seconds per pass, and what a pass adds to its bare forward."""

from __future__ import annotations

import time

import numpy as np

from .figures import derived, is_measured, part
from .image import draw
from .loop_table import LOOPS, Loop
from .random_target import RandomTarget

IMAGES = 3


def time_loop(target: RandomTarget, parts: dict, loop: Loop) -> dict:
    """Median seconds per pass over three images; warm-up (capturing or compiling included) apart."""
    run_pass, started = loop.make(), time.perf_counter()
    for _ in range(loop.warm_up):
        draw(target, parts, run_pass)
    preparation = time.perf_counter() - started
    images = [draw(target, parts, run_pass) for _ in range(IMAGES)]
    return {
        "seconds_per_pass": float(np.median([image.seconds_per_pass for image in images])),
        "passes": images[0].passes,
        "preparation_seconds": preparation,
    }


def add_tails(loops: dict, forwards: dict, windows: dict[str, int]) -> None:
    """Beside every pass the forward it holds, what it adds to that (``tail``), and as a share of it (``overhead``).

    Args:
        loops: {method: {loop: figure of :func:`time_loop`}}; changed in place.
        forwards: {way: {window: figure}}.
        windows: tokens of a forward by method.
    """
    for method, figures in loops.items():
        for name, figure in figures.items():
            forward = part(forwards, LOOPS[name].forward, str(windows[method]), "seconds")
            seconds = part(figure, "seconds_per_pass")
            if is_measured(figure):
                figure["forward_seconds"] = forward
                figure["tail_seconds"] = derived(lambda whole, bare: whole - bare, seconds, forward)
                figure["overhead"] = derived(lambda whole, bare: whole / bare - 1, seconds, forward)
