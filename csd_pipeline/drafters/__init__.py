"""Drafters: who proposes the tokens a target forward verifies."""

from .base import Drafter, DraftRun
from .jacobi import JacobiDrafter

DRAFTERS: dict[str, type[Drafter]] = {"jacobi": JacobiDrafter}

__all__ = ["DRAFTERS", "DraftRun", "Drafter", "JacobiDrafter"]
