"""Relaxation schedules: how much more willingly than plain speculative decoding a draft is accepted."""

from .base import Relaxation
from .entropy import EntropyRelaxation
from .exact import Exact

RELAXATIONS: dict[str, type[Relaxation]] = {"exact": Exact, "entropy": EntropyRelaxation}

__all__ = ["RELAXATIONS", "EntropyRelaxation", "Exact", "Relaxation"]
