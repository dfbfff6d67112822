"""The memory part of `csd info`: bytes of weights, cache and work, and the line that says them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from csd_pipeline.checkpoint import is_unused
from csd_pipeline.layouts.split_files import describe
from csd_pipeline.memory_estimate import PROMPT, MemoryEstimate, estimate
from csd_pipeline.weight_files import shards

_STORED = "as stored"


def stored_tensors(folder: Path, checkpoint) -> dict[str, Tensor]:
    """Tensors on disk, on the meta device, under the target's names where the layout tells them; none off the hub.

    Args:
        folder: of the target.
        checkpoint: its description if it has a layout of its own, else None.
    """
    if checkpoint is None:
        files = shards(folder) if folder.is_dir() else []
        tensors = {name: tensor for file in files for name, tensor in describe(file).items()}
        return {name: tensor for name, tensor in tensors.items() if not is_unused(name)}
    found: dict[str, Tensor] = {}
    for piece in checkpoint.pieces:
        for file in piece.files:
            for stored, tensor in describe(file).items():
                for name, _ in piece.translate(stored):
                    found.setdefault(name, tensor)
    return found


def formats_of(tensors: dict[str, Tensor]) -> list[str]:
    """Their number formats, most values first."""
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        counts[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    return [dtype for dtype, _ in counts.most_common()]


def estimates(
    adapter, stored: dict[str, Tensor], dtypes: list[torch.dtype | str], images: int, window: int, warp
) -> dict[str, MemoryEstimate]:
    """An estimate for each number format, by its name; "auto" is as stored, and packed weights stay packed."""
    floats = [name for name in formats_of(stored) if getattr(torch, name).is_floating_point]
    usual = getattr(torch, floats[0]) if floats else torch.float32
    packed = getattr(adapter.model.config, "quantization_config", None) is not None
    results = {}
    for dtype in dtypes:
        computed = usual if dtype == "auto" else dtype
        found = estimate(adapter, dtype=computed, images=images, window=window, warp=warp)
        if packed:
            found = replace(found, weights=sum(tensor.nbytes for tensor in stored.values()))
        elif dtype == "auto":
            sizes = {name: stored[name].element_size() for name in stored}
            named = adapter.model.named_parameters()
            found = replace(found, weights=sum(p.numel() * sizes.get(n, usual.itemsize) for n, p in named))
        results[_STORED if dtype == "auto" else str(dtype).removeprefix("torch.")] = found
    return results


def memory_line(found: dict[str, MemoryEstimate], images: int, window: int) -> str:
    """What is assumed, and the numbers of every format."""
    numbers = (
        f"weights {size_text(one.weights)}, cache {size_text(one.cache)}, peak {size_text(one.peak)} in {dtype}"
        for dtype, one in found.items()
    )
    line = f"{images} pictures at once, window {window}, prompts of {PROMPT} tokens: {'; '.join(numbers)}"
    return line.replace(f"in {_STORED}", _STORED)


def as_json(found: dict[str, MemoryEstimate]) -> dict[str, dict[str, int]]:
    """Bytes by number format."""
    return {dtype: asdict(one) | {"peak": one.peak} for dtype, one in found.items()}


def size_text(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
