"""Largest memory a block needed beyond what was held when it began."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Bytes: allocated tensors on a GPU, resident memory of the process on Linux, None elsewhere.

    Freed memory the allocator still holds would hide what a block needs, so it is given back first; the block is slower
    for it and should not be timed.
    """

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
        else:
            self._before = _reset_resident_peak()
        return self

    def __exit__(self, *_) -> None:
        if self.device.type == "cuda":
            self.bytes = torch.cuda.max_memory_allocated(self.device) - self._before
        elif self.device.type == "cpu" and self._before is not None:
            self.bytes = _resident("VmHWM") - self._before


def _reset_resident_peak() -> int | None:
    """Resident bytes now, with the kernel's high-water mark set back to them; None where that can't be done."""
    with contextlib.suppress(AttributeError):  # a C library without malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _RESET.write_text("5")
        return _resident("VmRSS")
    except OSError:
        return None


def _resident(name: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
