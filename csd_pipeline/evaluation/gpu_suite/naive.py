"""The naive loop against ours, making the same decisions."""

from __future__ import annotations

import numpy as np

from .agreement import compare
from .figures import derived, part
from .image import draw, draw_naively
from .random_target import RandomTarget

IMAGES = 2


def time_naive(target: RandomTarget, parts: dict) -> dict:
    """Seconds per pass of the naive loop, and whether its tokens are those of our eager loop; one image warms up."""
    ours, naive = draw(target, parts), draw_naively(target, parts)
    images = [draw_naively(target, parts) for _ in range(IMAGES)]
    return {
        "seconds_per_pass": float(np.median([image.seconds_per_pass for image in images])),
        "passes": naive.passes,
        "passes_of_ours": ours.passes,
        "accepted_per_pass": sum(naive.accepted) / len(naive.accepted),  # it reads numbers at every tested draft
        "tokens": compare(ours.tokens, naive.tokens),
    }


def over_ours(naive: dict | str, ours: dict) -> dict:
    """{loop: seconds per pass of the naive loop over those of ours}; ``ours`` are the figures of the same method."""
    seconds = part(naive, "seconds_per_pass")
    return {name: derived(lambda n, o: n / o, seconds, part(f, "seconds_per_pass")) for name, f in ours.items()}
