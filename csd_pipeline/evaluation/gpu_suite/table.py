"""The figures as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

from .figures import NOT_MEASURED, derived, is_measured, part
from .forward import WINDOWS


def markdown(result: dict) -> str:
    """Tables of what :func:`.suite.run_suite` returns."""
    shapes = result["shapes"]
    parts = [
        _heading(result),
        "Bare forward, t(W)/t(1):",
        _table(("shape", "way", "t(1) ms", *(f"W={window}" for window in WINDOWS[1:])), _forward_rows(shapes)),
        "Whole images:",
        _table(
            ("shape", "method", "loop", "ms/pass", "ms of the forward", "tail ms", "overhead", "warm-up s"),
            _loop_rows(shapes),
        ),
        "Plain decoding, memory read:",
        _table(("shape", "loop", "GB/pass", "GB/s", "of the peak"), _bandwidth_rows(shapes)),
        "Naive loop, the same decisions (CSD):",
        _table(("shape", "loop", "naive ms/pass over ours", "equal tokens"), _naive_rows(shapes)),
        "Other figures:",
        _table(("shape", "figure", "value"), _other_rows(shapes)),
        "\n".join(f"* {note}" for note in result["notes"]),
    ]
    return "\n\n".join(parts)


def _heading(result: dict) -> str:
    machine = result["machine"]
    place = machine.get("gpu", "no GPU: figures of one are not measured")
    return f"{place}, torch {machine['versions']['torch']}, {result['settings']['dtype']}, {result['seconds']:.0f} s"


def _table(columns: tuple[str, ...], rows: Iterable[tuple]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _forward_rows(shapes: dict) -> Iterable[tuple]:
    for shape, figures in shapes.items():
        for way, forwards in figures["forward"].items():
            ratios = (_number(_entry(forwards, str(window), "ratio"), "{:.2f}") for window in WINDOWS[1:])
            yield (shape, way, _ms(_entry(forwards, "1", "seconds")), *ratios)


def _entry(forwards: dict | str, window: str, key: str):
    """Not every window is compiled."""
    return NOT_MEASURED if is_measured(forwards) and window not in forwards else part(forwards, window, key)


def _loop_rows(shapes: dict) -> Iterable[tuple]:
    for shape, figures in shapes.items():
        for method, loops in figures["loops"].items():
            for loop, figure in loops.items():
                times = [_ms(part(figure, name)) for name in ("seconds_per_pass", "forward_seconds", "tail_seconds")]
                overhead = _number(part(figure, "overhead"), "{:.0%}")
                yield (shape, method, loop, *times, overhead, _number(part(figure, "preparation_seconds"), "{:.1f}"))


def _bandwidth_rows(shapes: dict) -> Iterable[tuple]:
    for shape, figures in shapes.items():
        counted = figures["bytes"]
        for loop in figures["loops"]["ar"]:
            count = derived(
                lambda weights, cache: (weights + cache) / 1e9,
                part(counted, "weight_bytes"),
                part(counted, "cache_bytes", loop),
            )
            rate = part(figures["bandwidth"], loop, "bytes_per_second")
            share = part(figures["bandwidth"], loop, "share_of_peak")
            gigabytes = derived(lambda value: value / 1e9, rate)
            yield (shape, loop, _number(count, "{:.3g}"), _number(gigabytes, "{:.0f}"), _number(share, "{:.0%}"))


def _naive_rows(shapes: dict) -> Iterable[tuple]:
    for shape, figures in shapes.items():
        equal = _number(part(figures["naive"], "tokens", "share_equal"), "{:.1%}")
        for loop, ratio in figures["naive_over_ours"].items():
            yield (shape, loop, _number(ratio, "{:.2f}"), equal)


def _other_rows(shapes: dict) -> Iterable[tuple]:
    for shape, figures in shapes.items():
        for dtype, figure in figures["agreement"].items():
            for key, words in (("share_before_it", "before the first difference"), ("share_equal", "in all")):
                share = _number(part(figure, key), "{:.1%}")
                yield (shape, f"exact decoding in {dtype}, tokens of plain decoding {words}", share)
        for method, peak in figures["memory"].items():
            yield (shape, f"peak MB of {method}", _number(derived(lambda value: value / 1e6, peak), "{:.0f}"))
        for method, loops in figures["syncs"].items():
            for loop, outcome in loops.items():
                yield (shape, f"waits in a pass, {method} {loop}", outcome.partition(":")[0])


def _ms(seconds: float | str) -> str:
    return _number(derived(lambda value: 1000 * value, seconds), "{:.3g}")


def _number(figure, form: str) -> str:
    """ "-" where a figure can't exist, such as a share of an unknown peak."""
    if not is_measured(figure):
        return NOT_MEASURED
    return "-" if figure is None else form.format(figure)
