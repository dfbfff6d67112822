"""Which guidance, temperature, top-k and top-p a call uses where it names none."""

from __future__ import annotations

from .decoding import Warp
from .presets import CALL_KNOBS, read_preset


def warp_of(pipeline, adapter, given: dict, preset: str | None) -> Warp:
    """Knobs of the call, else of its preset, of the pipeline, of the checkpoint, of the model family.

    Args:
        given: ``{"guidance_scale": ..., "temperature": ..., "top_k": ..., "top_p": ...}`` of the call; None is open.

    Raises:
        ValueError: a knob outside its range.
    """
    named = read_preset(preset)["call"] if preset is not None else {}
    checkpoint = getattr(pipeline.target, "generation_config", None)
    knobs = {}
    for name in CALL_KNOBS:
        choices = [given[name], named.get(name), pipeline.config[f"default_{name}"]]
        if name in ("guidance_scale", "temperature"):  # not top-k: 50 is transformers' own habit, no model's recipe
            choices += [getattr(checkpoint, name, None), getattr(adapter, f"default_{name}")]
        else:
            choices.append(getattr(adapter, f"default_{name}"))
        stated = [value for value in choices if value is not None]
        if stated:
            knobs[name] = stated[0]
    return Warp(**knobs)
