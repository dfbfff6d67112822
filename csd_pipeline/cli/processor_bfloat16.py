"""Whether a processor is faster in bfloat16 than in float32: asked of its instructions, then measured."""

from __future__ import annotations

import time

_ROWS, _WIDTH = 64, 2048  # a window of 32 tokens with its guidance rows, in a layer of a 1B model
_ROUNDS = 4
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")  # the last two of ARM


def computes_in_bfloat16() -> bool:
    """Whether the processor has instructions for it (AMX, AVX-512 BF16, ARM's); without, it is emulated, and slow.

    A torch that can not tell counts as no: older ones know nothing of ARM, or nothing at all.
    """
    import torch

    tell = getattr(torch.cpu, "get_capabilities", None)
    if tell is not None:
        return any(tell().get(name, False) for name in _INSTRUCTIONS)
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, name, bool)() for name in names)


def bfloat16_speedup() -> float:
    """How many times faster a layer of a decoder is in bfloat16, measured in some tens of ms on torch's threads."""
    import torch

    operands = {dtype: _operands(dtype) for dtype in (torch.float32, torch.bfloat16)}
    seconds = {dtype: [] for dtype in operands}
    for _ in range(_ROUNDS + 1):  # in turn, so that other work on the machine slows both
        for dtype, (rows, weights) in operands.items():
            started = time.perf_counter()
            torch.nn.functional.linear(rows, weights)
            seconds[dtype].append(time.perf_counter() - started)
    single, half = (min(times[1:]) for times in seconds.values())
    return single / half


def _operands(dtype):
    import torch

    return torch.ones(_ROWS, _WIDTH, dtype=dtype), torch.ones(_WIDTH, _WIDTH, dtype=dtype)
