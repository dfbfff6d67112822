"""A static key/value cache with one write position per row; the only file that knows transformers' cache interface.

Rolling back is not advancing: the next pass simply writes over the slots of rejected drafts. Storage never moves;
entries written behind their place (nodes of a tree of drafts) are copied to it.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from .indexing import count_up


class RowCacheLayer(CacheLayerMixin):
    """Keys and values of one layer, [R, heads, capacity, head_dim], written at per-row slots."""

    is_sliding = False
    is_compileable = False

    def __init__(self, capacity: int):
        super().__init__()
        self.capacity, self.limit = capacity, 0
        self.slots: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor | None = None) -> None:
        shape = (*key_states.shape[:2], self.capacity)
        value_states = key_states if value_states is None else value_states
        self.keys = key_states.new_zeros(*shape, key_states.shape[-1])
        self.values = value_states.new_zeros(*shape, value_states.shape[-1])
        for stored in (self.keys, self.values):
            torch._dynamo.maybe_mark_dynamic(stored, 2)  # one traced pass serves prompts of any length
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, limit = key_states.shape[0], self.limit
        place = self._place(self.slots, self.keys)
        # into the storage itself and not a view of it: a traced pass would copy all of it in every layer
        self.keys.index_put_(place, key_states)
        self.values.index_put_(place, value_states)
        return self.keys[:rows, :, :limit], self.values[:rows, :, :limit]

    def keep(self, rows: Tensor) -> None:
        self.keys[: len(rows)] = self.keys[rows.to(self.keys.device)]
        self.values[: len(rows)] = self.values[rows.to(self.values.device)]

    def admit(self, rows: Tensor, other: RowCacheLayer, length: int) -> None:
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            rows = rows.to(mine.device)
            mine[:, :, :length].index_copy_(0, rows, theirs[:, :, :length])
            mine[:, :, length:].index_fill_(0, rows, 0.0)  # a NaN left there would reach masked sums

    def move(self, source: Tensor, target: Tensor) -> None:
        for stored in (self.keys, self.values):
            stored.index_put_(self._place(target, stored), stored[self._place(source, stored)])

    @staticmethod
    def _place(slots: Tensor, stored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Index of the slots [R, T] of every row and head."""
        rows, heads = (count_up(length, stored.device) for length in (len(slots), stored.shape[1]))
        return rows[:, None, None], heads[:, None], slots[:, None].to(stored.device)

    def get_seq_length(self, *args) -> int:
        return 0  # positions and mask are always passed explicitly

    def get_mask_sizes(self, *args) -> tuple[int, int]:
        return self.limit, 0

    def get_max_cache_shape(self) -> int:
        return self.capacity

    get_max_length = get_max_cache_shape


class RowCache(Cache):
    """One :class:`RowCacheLayer` per decoder layer.

    Args:
        layers: number of decoder layers.
        capacity: slots per row (prompt + image tokens + window).
    """

    def __init__(self, layers: int, capacity: int):
        super().__init__(layers=[RowCacheLayer(capacity) for _ in range(layers)])
        self.capacity = capacity

    def place(self, slots: Tensor, limit: int) -> None:
        """Set the slots [R, T] (int64) the next forward writes, and how many leading slots attention reads."""
        for layer in self.layers:
            layer.slots, layer.limit = slots, limit

    def keep_rows(self, rows: Tensor) -> None:
        """Keep only the rows ``rows`` (int64 indices), moved to the front of the same storage."""
        for layer in self.layers:
            if layer.is_initialized:
                layer.keep(rows)

    def admit(self, rows: Tensor, other: RowCache, length: int) -> None:
        """Copy the first ``length`` slots of all rows of another cache into the rows ``rows`` (int64) of this one."""
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            mine.admit(rows, theirs, length)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy keys and values from the slots ``source`` [R, D] (int64) of every row to its slots ``target`` [R, D]."""
        for layer in self.layers:
            layer.move(source, target)


def cache_argument(module: torch.nn.Module) -> str:
    """Name of the cache argument of a transformers model (renamed during 5.x)."""
    return "cache" if "cache" in inspect.signature(type(module).forward).parameters else "past_key_values"
