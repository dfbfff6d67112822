"""The method of a run from the sockets that are connected, and the numbers of a run from widgets."""

from __future__ import annotations

from csd_pipeline.presets import build_parts, preset_names, read_preset

_FIRST = ("exact", "balanced", "fast", "ar")


def presets() -> list[str]:
    """All presets, those that fit every model first."""
    return [*_FIRST, *(name for name in preset_names() if name not in _FIRST)]


def complete_method(drafter=None, relaxation=None, alignment_filter=None) -> dict:
    """Parts of a run; without a drafter, that of preset "exact", or of "balanced" where a relaxation is connected."""
    if drafter is None:
        drafter = build_parts(read_preset("exact" if relaxation is None else "balanced"))["drafter"]
    return {"drafter": drafter, "relaxation": relaxation, "alignment_filter": alignment_filter}


def sampling_numbers(guidance: float, temperature: float, top_k: int = -1, top_p: float = -1) -> dict:
    """Arguments of the pipeline call; a negative one leaves it to the model."""
    given = {"guidance_scale": guidance, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    return {name: None if value < 0 else value for name, value in given.items()}
