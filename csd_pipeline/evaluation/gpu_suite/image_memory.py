"""Memory one image needs beyond the weights."""

from __future__ import annotations

from csd_pipeline.evaluation.peak_memory import PeakMemory

from .image import draw
from .random_target import RandomTarget


def peak_bytes(target: RandomTarget, parts: dict) -> int | None:
    """Bytes of session, state and the largest pass, from an eager run."""
    with PeakMemory(target.device) as memory:
        draw(target, parts)
    return memory.bytes
