"""Renaming stored tensors by pattern, and the small rearrangements several layouts need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from torch import Tensor

from csd_pipeline.checkpoint import is_unused

from .base import Destinations


def renamer(patterns: Iterable[tuple[str, str]], dropped: str = "") -> Callable[[str], Destinations]:
    """A ``translate`` that applies every (pattern, replacement) in order; names matching ``dropped`` are left out."""
    compiled = [(re.compile(pattern), replacement) for pattern, replacement in patterns]
    drop = re.compile(dropped) if dropped else None

    def translate(name: str) -> Destinations:
        if is_unused(name) or (drop and drop.search(name)):
            return []
        for pattern, replacement in compiled:
            name = pattern.sub(replacement, name)
        return [(name, None)]

    return translate


def prefixed(prefix: str, translate: Callable[[str], Destinations]) -> Callable[[str], Destinations]:
    """``translate`` with ``prefix`` before every name in the target."""
    return lambda name: [(prefix + new, change) for new, change in translate(name)]


def third(part: int) -> Callable[[Tensor], Tensor]:
    """Query (0), key (1) or value (2) rows of a joint projection."""
    return lambda tensor: tensor.chunk(3)[part]


def as_linear(tensor: Tensor) -> Tensor:
    """[O, I, 1, 1] weight of a convolution over single pixels -> [O, I]."""
    return tensor.flatten(1)


def count_levels(names: Iterable[str], pattern: str) -> int:
    """1 + the largest number ``pattern``'s group matches at the start of a name; 0 if none does."""
    found = (re.match(pattern, name) for name in names)
    return 1 + max((int(match[1]) for match in found if match), default=-1)
