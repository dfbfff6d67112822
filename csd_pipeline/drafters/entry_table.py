"""Where the laws of entering drafts are found: which neighbours a position has, given how far there are laws."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from csd_pipeline.decoding.indexing import count_up


def slot_table(
    init: str, columns: int, window: int, size: int, tokens: int, device: torch.device, free: Tensor | None = None
) -> Tensor:
    """Slots [N 2W - W + 1, K] int32 of the K laws that are used in equal shares.

    Row ``position + (2W - 1) newest`` is that of a position when those up to ``newest`` have a law; these have their
    own. A position is at most W away from the first that has none.

    Args:
        init: "uniform", "left", "above" or "mean", see :class:`.entry.EntryLaws`.
        columns: of the grid.
        window: W, largest number of tokens per forward.
        size: of the ring of laws; a position lives in slot ``position % size``, the fallback in slot ``size``.
        tokens: N.
        device: of the table.
        free: [N] int64, the last position up to each that is not forced, -1 if there is none; None: nothing is forced.
    """
    seen = count_up(tokens + 1, device).int()[:, None]  # positions below have a law; half the bytes of int64
    positions = seen + count_up(2 * window, device).int() - window
    own, own_slots = positions < seen, positions % size
    kinds = []
    for sources in _sources(init, positions, seen, columns, free):
        slots = (sources % size).masked_fill_(sources < 0, size)
        kinds.append(torch.where(own, own_slots, slots.int()))
    return torch.stack(kinds, -1).flatten(0, 1)[3 * window - 1 :]


@lru_cache(maxsize=16)  # the same for all images of a model where nothing is forced
def kept_table(init: str, columns: int, window: int, size: int, tokens: int, device: torch.device) -> Tensor:
    """:func:`slot_table` of a grid that forces nothing, kept between images; not to be changed in place."""
    return slot_table(init, columns, window, size, tokens, device)


def _sources(init: str, positions: Tensor, seen: Tensor, columns: int, free: Tensor | None) -> list[Tensor]:
    """Positions whose laws make up those of the positions [.., 2W], -1 for the fallback of the ring.

    In the first row nothing is above; "above" and "mean" then repeat the newest token, a point mass: its context is a
    likely one (a run of equal codes), drafts from a law are not, and Jacobi needs good contexts.
    """
    if init == "uniform":
        return [torch.full_like(positions, -1)]
    left = free_before(nearest_left(positions, seen), free)
    if init == "left":
        return [left]
    above = free_above(nearest_above(positions, seen, columns), free)
    if init == "above":
        return [above]
    beside = (left == free_before(positions - 1, free)) & (above >= 0)
    return [above, torch.where(beside, left, above)]


def nearest_left(positions: Tensor, known_below: Tensor) -> Tensor:
    """The nearest earlier position of those below ``known_below``."""
    return torch.minimum(positions, known_below) - 1


def nearest_above(positions: Tensor, known_below: Tensor, columns: int) -> Tensor:
    """The nearest position of the same column, in an earlier row, below ``known_below``; negative if there is none."""
    rows = (positions - known_below).div(columns, rounding_mode="floor") + 1
    return positions - columns * rows.clamp(min=1)


def free_before(source: Tensor, free: Tensor | None) -> Tensor:
    """``source`` itself where it is free, else the nearest free position before it; -1 if there is none."""
    return source if free is None else free[source.clamp(0, len(free) - 1)]


def free_above(source: Tensor, free: Tensor | None) -> Tensor:
    """``source`` where it is free, else -1: whole columns are forced, there is no use in going further up."""
    return source if free is None else torch.where(free_before(source, free) == source, source, -1)
