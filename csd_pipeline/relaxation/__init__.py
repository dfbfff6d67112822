"""Relaxation schedules: how much more willingly than plain speculative decoding a draft is accepted."""

from .addition import AdditionRelaxation
from .amplify import AmplifyRelaxation
from .annealed import AnnealedRelaxation
from .base import Relaxation
from .block import BlockVerification
from .ensemble import EnsembleRelaxation
from .entropy import EntropyRelaxation
from .exact import Exact
from .grouped import GroupedRelaxation
from .neighbour import NeighbourRelaxation
from .phrase import PhraseRelaxation
from .semantic import SemanticRelaxation

RELAXATIONS: dict[str, type[Relaxation]] = {
    "exact": Exact,
    "block": BlockVerification,
    "entropy": EntropyRelaxation,
    "amplify": AmplifyRelaxation,
    "addition": AdditionRelaxation,
    "annealed": AnnealedRelaxation,
    "ensemble": EnsembleRelaxation,
    "neighbour": NeighbourRelaxation,
    "grouped": GroupedRelaxation,
    "semantic": SemanticRelaxation,
    "phrase": PhraseRelaxation,
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
    "GroupedRelaxation",
    "NeighbourRelaxation",
    "PhraseRelaxation",
    "Relaxation",
    "SemanticRelaxation",
]
