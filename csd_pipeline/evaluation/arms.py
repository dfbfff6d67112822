"""Arms of a comparison: a name, a method, a window. All of them run in the one decoding loop."""

from __future__ import annotations

from dataclasses import dataclass

from csd_pipeline.checks import require_choice
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.presets import build_parts, read_preset
from csd_pipeline.relaxation import Exact


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


def _exact(redraw: str, init: str = "mean"):
    return lambda window: {
        "drafter": JacobiDrafter(window, redraw, init),
        "relaxation": Exact(),
        "alignment_filter": None,
    }


def _preset(name: str):
    """The parts of a preset, at another window."""

    def parts(window: int) -> dict:
        preset = read_preset(name)
        preset["drafter"] |= {"window": window}
        return build_parts(preset)

    return parts


METHODS = {
    "exact-fresh": _exact("fresh"),
    "exact-coupled": _exact("coupled"),
    "exact-gumbel": _exact("gumbel"),
    "sjd": _exact("fresh", "uniform"),
    "csd-paper": _preset("csd-janus-pro-7b-quality"),
    "csd-coupled": _preset("csd-coupled"),
    "balanced": _preset("balanced"),
    "fast": _preset("fast"),
}


def plain_arm(seed_offset: int = 0) -> Arm:
    """Plain autoregressive decoding, one token per forward."""
    return Arm("ar (other seeds)" if seed_offset else "ar", _exact("gumbel")(1), seed_offset)


def build_arms(methods: list[str], windows: list[int]) -> list[Arm]:
    """Plain decoding twice (same and other seeds), then every method at every window.

    Raises:
        ValueError: unknown method; the nearest name is offered.
    """
    for method in methods:
        require_choice("method", method, METHODS)
    arms = [Arm(f"{method} W={window}", METHODS[method](window)) for method in methods for window in windows]
    return [plain_arm(), plain_arm(seed_offset=10**6), *arms]
