"""Widgets that several nodes share."""

from __future__ import annotations

from comfy_api.latest import io

MAX_IMAGES = 64
LONGEST_SIDE = 4096
LAST_SEED = 2**64 - 1


def seed():
    return io.Int.Input(
        "seed",
        default=0,
        min=0,
        max=LAST_SEED,
        control_after_generate=True,
        tooltip="Same seed, same picture. Image i of a batch uses seed + i and equals that seed's own picture.",
    )


def images():
    return io.Int.Input("images", default=1, min=1, max=MAX_IMAGES, tooltip="Pictures to draw at once.")


def side(name: str):
    """Width or height: which ones a model can draw is known when it is there, not when the node is described."""
    return io.Int.Input(
        name,
        default=0,
        min=0,
        max=LONGEST_SIDE,
        step=8,
        optional=True,
        advanced=True,
        tooltip=f"Picture {name} in pixels. 0: the model's own. A size it can not draw is refused, with those it can.",
    )


def guidance(advanced: bool = False):
    return io.Float.Input(
        "guidance",
        default=-1.0,
        min=-1.0,
        max=100.0,
        step=0.1,
        advanced=advanced,
        tooltip="Classifier-free guidance scale. -1: the model's own (5 for Janus). 1: off, half the work.",
    )


def temperature(advanced: bool = False):
    return io.Float.Input(
        "temperature",
        default=-1.0,
        min=-1.0,
        max=10.0,
        step=0.05,
        advanced=advanced,
        tooltip="Sampling temperature. -1: the model's own. 0: always the likeliest token.",
    )
