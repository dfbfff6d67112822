"""Is the exact decoding with shared noise token for token plain decoding, when forwards of other widths round
differently?"""

from __future__ import annotations

from torch import Tensor

from .image import draw
from .methods import methods
from .random_target import RandomTarget


def compare(one: Tensor, other: Tensor) -> dict:
    """Tokens [1, N] against others: where they differ first (None: nowhere), and what shares of N are equal before
    that and in all."""
    same = (one == other).flatten().tolist()
    first = same.index(False) if False in same else None
    return {
        "tokens": len(same),
        "first_difference": first,
        "share_before_it": 1.0 if first is None else first / len(same),
        "share_equal": sum(same) / len(same),
    }


def agreement(target: RandomTarget) -> dict:
    """Exact decoding with a window of 16 against plain decoding, same seed."""
    parts = methods()
    return compare(draw(target, parts["ar"]).tokens, draw(target, parts["gumbel"]).tokens)
