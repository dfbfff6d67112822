"""Where to compute, in which number format and with how many threads, each with one line of reason."""

from __future__ import annotations

import os
from pathlib import Path

from csd_pipeline.checks import require_choice

from .processor_bfloat16 import bfloat16_speedup, computes_in_bfloat16

DTYPES = ("auto", "float32", "float16", "bfloat16")
_GAIN_WANTED = 1.2  # of bfloat16 on a processor; rounding is the price
_ALIASES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}


def choose_device(wanted: str) -> tuple[str, str]:
    """Device and reason.

    Raises:
        ValueError: unknown name, or a device this torch can't use.
    """
    import torch

    kind, numbered, index = wanted.partition(":")
    require_choice("device", kind, ("auto", "cpu", "cuda", "mps"))
    if kind == "auto" and numbered:
        raise ValueError(f"--device {wanted}: auto picks the device itself; name the kind beside a number, like cuda:0")
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        kind = next(name for name, usable in found.items() if usable)
        return kind, "no GPU that torch can use" if kind == "cpu" else "the fastest kind found"
    if not found[kind]:
        why = "a build without CUDA" if kind == "cuda" and torch.version.cuda is None else f"no usable {kind} device"
        raise ValueError(
            f"--device {wanted}: torch {torch.__version__} has {why}; use --device cpu, or see `csd doctor`"
        )
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if numbered and (not index.isdecimal() or int(index) >= count):
        raise ValueError(f"--device {wanted}: there is no device number {index}; {count} found, counted from 0")
    return wanted, "as asked"


def choose_dtype(wanted: str, device: str) -> tuple[str, str]:
    """Name of a torch dtype and reason.

    Raises:
        ValueError: unknown name, or bfloat16 on a device without it.
    """
    wanted = _ALIASES.get(wanted, wanted)
    require_choice("dtype", wanted, DTYPES)
    kind = device.partition(":")[0]
    bfloat16 = supports_bfloat16(device)
    if wanted == "bfloat16" and not bfloat16:
        raise ValueError(f"--dtype bfloat16: {device} does not compute in bfloat16; use --dtype auto")
    if wanted != "auto":
        return wanted, "as asked"
    if kind == "cuda":
        if bfloat16:
            return "bfloat16", "half the memory, and this device computes in it"
        return "float16", "this device does not compute in bfloat16"
    if kind == "mps":
        return "float16", "half the memory; --dtype float32 is the safe choice for small models"
    if not computes_in_bfloat16():
        return "float32", "this processor has no instructions for bfloat16"
    gain = bfloat16_speedup()
    if gain > _GAIN_WANTED:
        return "bfloat16", f"a decoder layer is {gain:.1f}x as fast in it as in float32 on this processor, measured"
    return "float32", f"a decoder layer in bfloat16 is only {gain:.1f}x as fast on this processor, measured"


def supports_bfloat16(device: str) -> bool:
    """Whether the device itself computes in bfloat16 (emulation does not count)."""
    import torch

    kind = device.partition(":")[0]
    if kind == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    if kind == "mps":
        try:
            ones = torch.ones(2, 2, dtype=torch.bfloat16, device="mps")
            return bool((ones @ ones == 2).all())
        except (RuntimeError, TypeError):
            return False
    return True


def choose_threads(wanted: int | None) -> tuple[int, str]:
    """Number of torch threads and reason.

    Threads of torch wait by spinning: beside other work, a thread more than there are free cores is many times slower.
    """
    if wanted is not None:
        return wanted, "as asked"
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdigit() and int(named) > 0:
        return int(named), "OMP_NUM_THREADS"
    cores = max(1, min(_physical_cores(), available_cores()))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    free = round(available_cores() - load)
    if free < cores:
        return max(1, cores // 2, free), f"{cores} cores, but other programs keep {load:.0f} busy"
    return cores, "one per core"


def available_cores() -> int:
    """Cores this process may use: affinity and container quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def _physical_cores() -> int:
    """Cores without hyper-threading twins; all logical ones where that can't be told."""
    siblings = set()
    for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            siblings.add(path.read_text().strip())
        except OSError:
            continue
    return len(siblings) or os.cpu_count() or 1
