"""A trace as pictures and text: maps over the image, tokens per pass as a plot, the numbers as a report."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from csd_pipeline.cli.parts import knob_text
from csd_pipeline.evaluation.maps import SCALES, overlay, value_range

_BLOCK = 16  # pixels per token where no picture lies under a map
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48
_PAPER, _INK, _FAINT, _BAR, _MEAN = (255, 255, 255), (25, 25, 30), (150, 150, 158), (144, 41, 118), (246, 125, 70)


def check_images(traces: list, images: int) -> None:
    """Raise ValueError unless there is one image per trace."""
    if images != len(traces):
        raise ValueError(f"got {images} images for {len(traces)} traces; connect the pictures of the same sampler run")


def map_pictures(name: str, traces: list, images: list[Image.Image] | None = None) -> list[Image.Image]:
    """One map of every trace, over its picture or over plain grey; all of a batch on one colour scale.

    Args:
        name: "entropy", "acceptance", "passes" or "drift".
        images: one picture per trace, all of one size.

    Raises:
        ValueError: not one picture per trace.
    """
    maps = [trace.maps[name] for trace in traces]
    if images is None:
        rows, columns = maps[0].shape
        images = [Image.new("RGB", (columns * _BLOCK, rows * _BLOCK), _FAINT)] * len(traces)
    check_images(traces, len(images))
    low, high = value_range(np.stack(maps), SCALES[name].low, SCALES[name].high)
    return [overlay(image, values, low, high) for image, values in zip(images, maps, strict=True)]


def plot(trace) -> Image.Image:
    """Tokens of every pass as bars, their mean as a line."""
    tokens = [accepted + 1 for accepted in trace.accepted] or [0]
    page = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(size=15)
    left, right, top, bottom = _MARGIN, _WIDTH - 16, _MARGIN, _HEIGHT - _MARGIN
    scale, step = (bottom - top) / max(tokens), (right - left) / len(tokens)
    for number, count in enumerate(tokens):
        x = left + number * step
        draw.rectangle((x, bottom - count * scale, x + max(step - 1, 0), bottom), fill=_BAR)
    mean = bottom - trace.tokens_per_step * scale
    draw.line((left, mean, right, mean), fill=_MEAN, width=2)
    draw.line((left, bottom, right, bottom), fill=_INK)
    title = (
        f"{trace.tokens_per_step:.2f} tokens per pass, drift {trace.drift_per_token:.4f} per token, seed {trace.seed}"
    )
    draw.text((left, 14), title, fill=_INK, font=font)
    draw.text((left - 8, top), str(max(tokens)), fill=_INK, font=font, anchor="rm")
    draw.text((left - 8, bottom), "0", fill=_INK, font=font, anchor="rm")
    draw.text(((left + right) / 2, bottom + 10), f"pass, 1 to {len(tokens)}", fill=_INK, font=font, anchor="ma")
    return page


def report(traces: list, recipes: list[dict]) -> str:
    """The numbers of every image and the method that made them, one block of lines per image."""
    return "\n\n".join(_block(trace, recipe) for trace, recipe in zip(traces, recipes, strict=True))


def _block(trace, recipe: dict) -> str:
    histogram = ", ".join(f"{k}: {count}" for k, count in enumerate(trace.accepted_histogram) if count)
    lines = [
        f"seed {trace.seed}: {trace.tokens} tokens in {trace.nfe} passes and the prompt's own, {trace.seconds:.2f} s",
        f"tokens per pass: {trace.tokens_per_step:.2f}; accepted drafts per pass: {trace.accepted_per_step:.2f}",
        f"passes by accepted drafts: {histogram or 'none'}",
        f"drift: {trace.drift:.4f} in the image, {trace.drift_per_token:.5f} per token (total variation)",
    ]
    kinds = ("drafter", "relaxation", "alignment_filter")
    lines += [f"{kind.replace('_', ' ')}: {knob_text(recipe.get(kind))}" for kind in kinds]
    knobs = ("model", "dtype", "guidance_scale", "temperature", "top_k", "top_p")
    return "\n".join([*lines, ", ".join(f"{knob} {recipe[knob]}" for knob in knobs if knob in recipe)])
