"""Several filters at once: a position is relaxed only as far as the strictest of them allows."""

from __future__ import annotations

from functools import reduce

from diffusers.configuration_utils import register_to_config
from torch import Tensor, minimum

from csd_pipeline.decoding.window import Window

from .base import AlignmentFilter


class CombinedFilter(AlignmentFilter):
    """The smallest gate of its parts; made by ``a & b``.

    Args:
        parts: one dict per filter, ``{"_class_name": "TVFilter", "delta": 0.65}``, so that it saves as JSON.

    Raises:
        ValueError: no list of parts, or an unknown filter name.
    """

    @register_to_config
    def __init__(self, parts: list[dict] = ()):
        from . import build_filter

        if not isinstance(parts, (list, tuple)) or not parts:
            raise ValueError(f"CombinedFilter needs at least one part, in a list (see `a & b`), got {parts!r}")
        self._parts = [build_filter(part) for part in parts]

    @classmethod
    def of(cls, *filters: AlignmentFilter) -> CombinedFilter:
        """Combine filters, flattening combinations of combinations."""
        parts = [p for f in filters for p in (f._parts if isinstance(f, CombinedFilter) else [f])]
        return cls(parts=[{"_class_name": type(p).__name__, **public_config(p)} for p in parts])

    @property
    def uses_ledger(self) -> bool:
        return any(part.uses_ledger for part in self._parts)

    @property
    def always_closed(self) -> bool:
        return any(part.always_closed for part in self._parts)

    def gate(self, window: Window, drift: Tensor) -> Tensor:
        return reduce(minimum, (part.gate(window, drift) for part in self._parts))


def public_config(part: AlignmentFilter) -> dict:
    """The options of a component without diffusers' bookkeeping."""
    return {k: v for k, v in part.config.items() if not k.startswith("_")}
