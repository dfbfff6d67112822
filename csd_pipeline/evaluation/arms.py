"""Arms of a comparison: a name, a method, a window. All of them run in the one decoding loop."""

from __future__ import annotations

from dataclasses import dataclass

from csd_pipeline.alignment import CombinedFilter, DriftBudget, TVFilter
from csd_pipeline.checks import require_choice
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import EntropyRelaxation, Exact


@dataclass(frozen=True)
class Arm:
    """One method at one window.

    Args:
        name: how the tables call it.
        parts: ``drafter``, ``relaxation``, ``alignment_filter``.
        seed_offset: added to every seed (to see how much plain decoding itself varies).
    """

    name: str
    parts: dict
    seed_offset: int = 0


def _jacobi(redraw: str, init: str = "mean"):
    return lambda window: _parts(JacobiDrafter(window, redraw, init))


def _parts(drafter, relaxation=None, alignment_filter=None) -> dict:
    return {"drafter": drafter, "relaxation": relaxation or Exact(), "alignment_filter": alignment_filter}


def _csd_paper(window: int) -> dict:
    """CSD as published for Janus-Pro-7B (quality): fresh drafts, uniform entries, entries and support relaxed too."""
    rule = EntropyRelaxation(lam=0.5, support_guard=False, relax_fresh=True)
    return _parts(JacobiDrafter(window, "fresh", "uniform"), rule, TVFilter(0.65))


def _csd_coupled(window: int) -> dict:
    return _parts(JacobiDrafter(window, "coupled", "mean"), EntropyRelaxation(lam=0.5), TVFilter(0.8))


def _csd_budget(window: int) -> dict:
    gate = CombinedFilter.of(TVFilter(0.65), DriftBudget(0.1))
    return _parts(JacobiDrafter(window, "coupled", "mean"), EntropyRelaxation(lam=0.5), gate)


METHODS = {
    "exact-fresh": _jacobi("fresh"),
    "exact-coupled": _jacobi("coupled"),
    "exact-gumbel": _jacobi("gumbel"),
    "sjd": _jacobi("fresh", "uniform"),
    "csd-paper": _csd_paper,
    "csd-coupled": _csd_coupled,
    "csd-budget": _csd_budget,
}


def plain_arm(seed_offset: int = 0) -> Arm:
    """Plain autoregressive decoding, one token per forward."""
    return Arm("ar (other seeds)" if seed_offset else "ar", _parts(JacobiDrafter(window=1)), seed_offset)


def build_arms(methods: list[str], windows: list[int]) -> list[Arm]:
    """Plain decoding twice (same and other seeds), then every method at every window.

    Raises:
        ValueError: unknown method; the nearest name is offered.
    """
    for method in methods:
        require_choice("method", method, METHODS)
    arms = [Arm(f"{method} W={window}", METHODS[method](window)) for method in methods for window in windows]
    return [plain_arm(), plain_arm(seed_offset=10**6), *arms]
