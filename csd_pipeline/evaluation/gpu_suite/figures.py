"""Figures that exist, and figures that do not: a number nobody measured is a sentence, never a number."""

from __future__ import annotations

from collections.abc import Callable

NOT_MEASURED = "not measured"
ONLY_ON_GPU = f"{NOT_MEASURED}: only on a GPU"


def not_measured(reason: str) -> str:
    return f"{NOT_MEASURED}: {reason}"


def is_measured(figure) -> bool:
    return not isinstance(figure, str)


def part(figure: dict | str, *keys: str):
    """``figure[key][...]``, or the sentence that stands in place of anything on the way."""
    for key in keys:
        if not is_measured(figure):
            return figure
        figure = figure[key]
    return figure


def derived(compute: Callable, *figures):
    """``compute(*figures)``, or the sentence that stands in place of the first one that is missing."""
    missing = [figure for figure in figures if not is_measured(figure)]
    return missing[0] if missing else compute(*figures)
