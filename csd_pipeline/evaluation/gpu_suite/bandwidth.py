"""Bytes a pass of plain decoding has to read, against the time it takes and what the device's memory can deliver."""

from __future__ import annotations

import torch

from .figures import derived, part
from .loop_table import LOOPS
from .random_target import RandomTarget

# bytes per second by the beginning of the device's name, as the vendor states them
_PEAKS = {
    "NVIDIA A100-SXM4-80GB": 2.0e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA H200": 4.8e12,
}


def peak_bandwidth(device_name: str) -> float | None:
    """Bytes per second, None for a device that is not in the list."""
    return next((peak for name, peak in _PEAKS.items() if device_name.startswith(name)), None)


def weight_bytes(model) -> int:
    """Bytes of the parameters every pass over image codes reads: the layers, the norm behind them, the aligner of
    code embeddings and the head of image codes. Of tables of embeddings a pass reads single rows: not counted."""
    inner = model.model
    read = (inner.language_model.layers, inner.language_model.norm, inner.generation_aligner, inner.generation_head)
    return sum(weight.numel() * weight.element_size() for module in read for weight in module.parameters())


@torch.no_grad()
def cache_bytes(target: RandomTarget, bucket: int) -> float:
    """Bytes of keys and values that attention reads in a pass of plain decoding, mean over the passes of an image."""
    session = target.open(1)
    session.prefill()
    stored = [tensor for layer in session.cache.layers for tensor in (layer.keys, layer.values)]
    slot = sum(tensor[:, :, 0].numel() * tensor.element_size() for tensor in stored)
    limits = [session.reach(longest, 1, bucket) for longest in range(1, target.tokens)]
    return slot * sum(limits) / len(limits)


def count_bytes(target: RandomTarget) -> dict:
    """Bytes per pass: of the weights, and of the cache by loop, since loops read it up to different multiples."""
    caches = {name: cache_bytes(target, loop.make().bucket) for name, loop in LOOPS.items()}
    return {"weight_bytes": weight_bytes(target.model), "cache_bytes": caches}


def used_bandwidth(counted: dict | str, plain: dict, peak: float | None) -> dict:
    """{loop: bytes per second of plain decoding and their share of the peak (None without a known peak)}.

    Args:
        counted: from :func:`count_bytes`.
        plain: {loop: figure of whole images of plain decoding}.
        peak: bytes per second.
    """
    figures = {}
    for name, figure in plain.items():
        total = derived(lambda weights, cache: weights + cache, *(part(counted, *k) for k in _places(name)))
        speed = derived(lambda count, seconds: count / seconds, total, part(figure, "seconds_per_pass"))
        share = derived(lambda rate: None if peak is None else rate / peak, speed)
        figures[name] = derived(lambda rate, share: {"bytes_per_second": rate, "share_of_peak": share}, speed, share)
    return figures


def _places(loop: str) -> tuple[tuple[str, ...], ...]:
    return ("weight_bytes",), ("cache_bytes", loop)
