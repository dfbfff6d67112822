"""Seconds of a call, repeated: the median, and how far it spreads."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

WARM_UP, REPEATS = 5, 30


def time_call(call: Callable[[], object], device: torch.device, repeats: int = REPEATS) -> dict[str, float]:
    """Median, 10th and 90th percentile of the seconds of ``call``, by CUDA events where there are any.

    The calls are not waited for one by one: a loop that launches ahead does not wait either.
    """
    for _ in range(WARM_UP):
        call()
    spans = _on_gpu(call, repeats, device) if device.type == "cuda" else _on_host(call, repeats)
    low, middle, high = np.percentile(spans, (10, 50, 90)).tolist()
    return {"seconds": middle, "low": low, "high": high}


def _on_gpu(call, repeats: int, device: torch.device) -> list[float]:
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in pairs:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize(device)
    return [start.elapsed_time(end) / 1000 for start, end in pairs]


def _on_host(call, repeats: int) -> list[float]:
    spans = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        spans.append(time.perf_counter() - started)
    return spans
