"""Heat maps of a trace over its picture, drawn with Pillow alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# dark to bright at an even rate, so that the order of values survives printing in grey
_COLOURS = np.array(
    [(24, 15, 61), (74, 30, 115), (144, 41, 118), (208, 68, 92), (246, 125, 70), (253, 190, 90), (252, 250, 170)]
)
_PAPER, _INK, _FAINT = (255, 255, 255), (25, 25, 30), (110, 110, 118)
_PANEL, _GAP, _BAR = 288, 24, 12  # smallest side of a panel, space between panels, height of a colour bar


@dataclass(frozen=True)
class Scale:
    """How the values of a map become colours: title, unit, and the ends of the colour bar."""

    title: str
    unit: str
    low: float | None = None
    high: float | None = None


SCALES = {
    "entropy": Scale("Entropy", "nats", low=0.0),
    "acceptance": Scale("Acceptance of the draft", "probability", low=0.0, high=1.0),
    "passes": Scale("Committed in pass", "number", low=1.0),
    "drift": Scale("Drift", "total variation", low=0.0),
}


def colours(values: np.ndarray) -> np.ndarray:
    """Colours [..., 3] uint8 of values in 0..1."""
    stops = np.linspace(0.0, 1.0, len(_COLOURS))
    channels = [np.interp(values, stops, _COLOURS[:, channel]) for channel in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def value_range(values, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """The ends of the colour bar: those given, else those of the finite values."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low = float(finite.min(initial=np.inf)) if low is None and finite.size else (low or 0.0)
    high = float(finite.max(initial=-np.inf)) if high is None and finite.size else (high if high is not None else low)
    return low, max(high, low)


def overlay(
    image: Image.Image,
    values,
    low: float | None = None,
    high: float | None = None,
    opacity: float = 0.72,
    size: tuple[int, int] | None = None,
) -> Image.Image:
    """A map laid over the greyed picture, one block per token.

    Args:
        image: the picture.
        values: [rows, columns] array or tensor; where it is NaN the grey picture shows through.
        low, high: values of the darkest and the brightest colour; None takes those of the map.
        opacity: of the colours, 0..1.
        size: (width, height) of the result; None keeps the picture's.
    """
    values = np.asarray(values, dtype=np.float64)
    size = size or image.size
    low, high = value_range(values, low, high)
    heat = Image.fromarray(colours(np.nan_to_num((values - low) / (high - low) if high > low else 0.0 * values)))
    known = Image.fromarray(np.where(np.isfinite(values), round(255 * opacity), 0).astype(np.uint8))
    grey = image.convert("L").point(lambda shade: 96 + shade * 159 // 255)  # dark pictures would dull the colours
    grey = grey.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    grey.paste(heat.resize(size, Image.Resampling.NEAREST), mask=known.resize(size, Image.Resampling.NEAREST))
    return grey


def sheet(image: Image.Image, trace) -> Image.Image:
    """The picture and its maps side by side, each with a colour bar.

    Args:
        image: the picture.
        trace: its :class:`~csd_pipeline.Trace`, recorded with ``record_maps=True``.

    Raises:
        ValueError: the trace holds no maps.
    """
    names = [name for name in SCALES if name in trace.maps]
    if "entropy" not in names:
        raise ValueError("the trace has no maps; call the pipeline with record_maps=True")
    factor = max(1, -(-_PANEL // min(image.size)))
    width, height = image.width * factor, image.height * factor
    title, small = _font(20), _font(15)
    top, below = _GAP + 32, 62
    page = Image.new("RGB", ((width + _GAP) * (len(names) + 1) + _GAP, top + height + below + _GAP), _PAPER)
    draw = ImageDraw.Draw(page)
    for number, name in enumerate((None, *names)):
        corner = (_GAP + number * (width + _GAP), top)
        scale = SCALES[name] if name else None
        draw.text((corner[0], _GAP - 4), scale.title if scale else "Picture", fill=_INK, font=title)
        if scale is None:
            page.paste(image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS), corner)
            _caption(draw, (corner[0], top + height + 10), trace, small)
            continue
        low, high = value_range(trace.maps[name], scale.low, scale.high)
        page.paste(overlay(image, trace.maps[name], low, high, size=(width, height)), corner)
        _colour_bar(page, draw, (corner[0], top + height + 12), width, (low, high), scale.unit, small)
    return page


def _colour_bar(page, draw, corner: tuple[int, int], width: int, ends: tuple[float, float], unit: str, font) -> None:
    x, y = corner
    low, high = ends
    if high <= low:
        draw.text((x, y), f"{_number(low)} everywhere ({unit})", fill=_FAINT, font=font)
        return
    strip = colours(np.linspace(0.0, 1.0, width))[None].repeat(_BAR, 0)
    page.paste(Image.fromarray(strip), corner)
    y += _BAR + 6
    draw.text((x, y), _number(low), fill=_FAINT, font=font)
    draw.text((x + width / 2, y), unit, fill=_FAINT, font=font, anchor="ma")
    draw.text((x + width, y), _number(high), fill=_FAINT, font=font, anchor="ra")


def _caption(draw, corner: tuple[int, int], trace, font) -> None:
    lines = (
        f"seed {trace.seed}",
        f"{trace.tokens} tokens, {trace.nfe} forwards, {trace.tokens_per_step:.2f} per step",
        f"drift {trace.drift_per_token:.4f} per token",
    )
    for number, line in enumerate(lines):
        draw.text((corner[0], corner[1] + 20 * number), line, fill=_FAINT, font=font)


def _number(value: float) -> str:
    return f"{value:.3g}"


def _font(size: int):
    return ImageFont.load_default(size=size)
