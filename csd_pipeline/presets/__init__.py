"""Named settings: the parts of a method and, where a paper fixes them, the sampling numbers. One JSON file each."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from csd_pipeline.checks import construct, require_choice

CALL_KNOBS = ("guidance_scale", "temperature", "top_k", "top_p")


@cache
def preset_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.json")))


def read_preset(name: str) -> dict:
    """Content of a preset: ``description``, ``source``, ``drafter``, ``relaxation``, ``alignment_filter``, ``call``.

    Raises:
        ValueError: unknown name; the message offers the nearest one.
    """
    require_choice("preset", name, preset_names())
    return json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))


def build_parts(preset: dict) -> dict:
    """``{"drafter": ..., "relaxation": ..., "alignment_filter": ... or None}`` of a preset."""
    from csd_pipeline.alignment import build_filter
    from csd_pipeline.drafters import DRAFTERS
    from csd_pipeline.relaxation import RELAXATIONS

    wanted = preset.get("alignment_filter")
    return {
        "drafter": build("drafter", DRAFTERS, **preset["drafter"]),
        "relaxation": build("relaxation", RELAXATIONS, **preset["relaxation"]),
        "alignment_filter": build_filter(wanted) if wanted else None,
    }


def build(kind: str, registry: dict[str, type], name: str, **knobs):
    """A part by its registry name and knobs.

    Raises:
        ValueError: unknown name or knob; the message offers the nearest known one.
    """
    require_choice(kind, name, registry)
    return construct(registry[name], knobs, name)
