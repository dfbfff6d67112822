"""Relaxation schedules: how much more willingly than plain speculative decoding a draft is accepted."""

from .addition import AdditionRelaxation
from .amplify import AmplifyRelaxation
from .annealed import AnnealedRelaxation
from .base import Relaxation
from .block import BlockVerification
from .ensemble import EnsembleRelaxation
from .entropy import EntropyRelaxation
from .exact import Exact

RELAXATIONS: dict[str, type[Relaxation]] = {
    "exact": Exact,
    "block": BlockVerification,
    "entropy": EntropyRelaxation,
    "amplify": AmplifyRelaxation,
    "addition": AdditionRelaxation,
    "annealed": AnnealedRelaxation,
    "ensemble": EnsembleRelaxation,
}

__all__ = [
    "RELAXATIONS",
    "AdditionRelaxation",
    "AmplifyRelaxation",
    "AnnealedRelaxation",
    "BlockVerification",
    "EnsembleRelaxation",
    "EntropyRelaxation",
    "Exact",
    "Relaxation",
]
