"""Index tensors and row look-ups shared by the loop: few operations each, no copy from the host."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


def count_up(length: int, device: torch.device) -> Tensor:
    """[length] int64 ``0, 1, ..``; kept between passes, so it must not be changed in place."""
    if torch.compiler.is_compiling():
        return torch.arange(length, device=device)
    return _kept(length, device)


@cache  # for good: a captured pass reads them where they are
def _kept(length: int, device: torch.device) -> Tensor:
    return torch.arange(length, device=device)


def filled(value: bool | int | float, images: int, length: int, device: torch.device) -> Tensor:
    """[images, length] of one value, of the type that it has; kept between passes, so not to be changed in place."""
    if torch.compiler.is_compiling():
        return torch.full((images, length), value, device=device)
    return _kept_fill(value, type(value), images, length, device)


@cache
def _kept_fill(value, kind: type, images: int, length: int, device: torch.device) -> Tensor:
    """``kind`` tells apart values that are equal, such as True and 1."""
    return torch.full((images, length), value, device=device)


def take(values: Tensor, index: Tensor) -> Tensor:
    """``values[b, index[b, l]]``: [B, T, ...] values and [B, L] int64 -> [B, L, ...]; whole rows are copied."""
    return values.flatten(0, 1).index_select(0, _flat(values, index)).view(*index.shape, *values.shape[2:])


def put(values: Tensor, index: Tensor, rows: Tensor) -> None:
    """``values[b, index[b, l]] = rows[b, l]`` in place; where an index repeats, any of its rows may stay."""
    values.index_put_((count_up(len(index), index.device)[:, None], index), rows)


def admit_rows(values: Tensor, slots: Tensor, rows: Tensor) -> None:
    """``values[slots] = rows`` in place: what belongs to the images in ``slots`` [K] int64 becomes that of others."""
    values.index_copy_(0, slots, rows)


def where_it_was(kept: Tensor | None, new: Tensor) -> Tensor:
    """``new``, written over ``kept`` if that is of its kind, so that a captured pass which reads ``kept`` finds it."""
    if kept is None or (kept.shape, kept.dtype, kept.device) != (new.shape, new.dtype, new.device):
        return new
    return kept if kept.data_ptr() == new.data_ptr() else kept.copy_(new)


def at_slot(values: Tensor, slot: Tensor) -> Tensor:
    """``values[b, slot[b]]`` for [B, L, ...] values and [B] int64."""
    return take(values, slot[:, None]).squeeze(1)


def at_drafts(values: Tensor, drafts: Tensor) -> Tensor:
    """[B, L] entries of [B, L, V] values at the drafts [B, L]."""
    return values.gather(-1, drafts.unsqueeze(-1)).squeeze(-1)


def _flat(values: Tensor, index: Tensor) -> Tensor:
    images, length = values.shape[:2]
    if images == 1:
        return index.flatten()
    return (index + length * count_up(images, index.device)[:, None]).flatten()
