from pathlib import Path

import torch

from csd_pipeline.evaluation.peak_memory import PeakMemory

MEGABYTE = 2**20


def peak_of(megabytes: int) -> int | None:
    with PeakMemory() as memory:
        torch.ones(megabytes * MEGABYTE // 4).sum()
    return memory.bytes


def test_it_sees_what_a_block_needs_though_the_block_gave_it_back():
    peaks = [peak_of(size) for size in (200, 50, 120)]
    if Path("/proc/self/clear_refs").exists():
        for peak, size in zip(peaks, (200, 50, 120), strict=True):
            assert size * MEGABYTE <= peak + MEGABYTE and peak < (size + 20) * MEGABYTE
    else:
        assert peaks == [None, None, None]
