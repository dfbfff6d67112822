"""The methods whose passes are timed, by the names tables use."""

from __future__ import annotations

from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.presets import build_parts, read_preset
from csd_pipeline.relaxation import Exact

WINDOW = 16


def methods() -> dict[str, dict]:
    """Parts of plain decoding, of exact decoding that returns the very picture of it, and of CSD as published."""
    return {
        "ar": _exact(1),
        "gumbel": _exact(WINDOW),
        "csd": build_parts(read_preset("csd-janus-pro-1b")),
    }


def _exact(window: int) -> dict:
    return {"drafter": JacobiDrafter(window, "gumbel"), "relaxation": Exact(), "alignment_filter": None}
