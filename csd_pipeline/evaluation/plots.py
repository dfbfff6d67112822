"""Plots of a comparison as SVG texts; matplotlib is an optional extra."""

from __future__ import annotations

import io

from .arms import PLAIN, TRANSFORMERS
from .summary import Row

_MARKERS = "osD^vP*Xh<>p"


def speed_against_drift(rows: list[Row]) -> str:
    """One line per method over its windows: wall-clock ratio against mean drift per token."""
    return _against(rows, lambda row: row.drift_per_token.mean, "drift per token (total variation)")


def speed_against_likelihood(rows: list[Row]) -> str:
    """The same against how improbable the pictures are to the target."""
    return _against(rows, lambda row: row.nats_per_token.mean, "nats per token under the target")


def speed_against_subject(rows: list[Row]) -> str:
    """The same against the share of recognised subjects; needs a judge."""
    return _against(rows, lambda row: 100 * row.subject, "subject right, %")


def acceptance_by_index(rows: list[Row]) -> str:
    """Share of tested drafts that were accepted, by their index in the window; the widest window of every method."""
    figure, axes = _figure()
    for number, (method, members) in enumerate(methods(rows).items()):
        rates = members[-1].acceptance_by_index
        if rates:
            style = {"marker": _MARKERS[number % len(_MARKERS)], "markersize": 4}
            axes.plot(range(1, len(rates) + 1), rates, label=f"{method} W={_window(members[-1])}", **style)
    axes.set(xlabel="index of the draft in the window", ylabel="accepted share of the drafts tested", ylim=(0, 1.02))
    return _svg(figure, axes)


def accepted_histogram(rows: list[Row]) -> str:
    """Share of passes by the number of drafts they accepted; the widest window of every method."""
    figure, axes = _figure()
    for method, members in methods(rows).items():
        counts = members[-1].histogram
        total = sum(counts)
        shares = [count / total for count in counts]
        axes.step(range(len(counts)), shares, where="mid", label=f"{method} W={_window(members[-1])}")
    axes.set(xlabel="drafts accepted in a pass", ylabel="share of the passes")
    return _svg(figure, axes)


def methods(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by method, windows ascending; the arms that do not draft left out."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        method, mark, _ = row.arm.rpartition(" W=")
        if mark:
            groups.setdefault(method, []).append(row)
    return {method: sorted(members, key=_window) for method, members in groups.items()}


def _window(row: Row) -> int:
    return int(text) if (text := row.arm.rpartition(" W=")[2]).isdigit() else 0


def _against(rows: list[Row], quality, label: str) -> str:
    figure, axes = _figure()
    for number, (method, members) in enumerate(methods(rows).items()):
        speeds = [row.over_plain for row in members]
        low = [speed.median - speed.low for speed in speeds]
        high = [speed.high - speed.median for speed in speeds]
        x, y = [quality(row) for row in members], [speed.median for speed in speeds]
        marker = _MARKERS[number % len(_MARKERS)]
        axes.errorbar(x, y, yerr=(low, high), marker=marker, markersize=5, capsize=2, linewidth=1, label=method)
        for row, left, top in zip(members, x, y, strict=True):
            axes.annotate(str(_window(row)), (left, top), xytext=(5, 3), textcoords="offset points", fontsize=7)
    for row in rows:
        if row.arm in (PLAIN, TRANSFORMERS):
            axes.plot(quality(row), row.over_plain.median, "k+" if row.arm == PLAIN else "kx", label=row.arm)
    axes.set(xlabel=label, ylabel="times faster than plain decoding (wall clock)")
    axes.set_ylim(bottom=0)
    return _svg(figure, axes)


def _figure():
    from matplotlib.figure import Figure  # not pyplot: it would choose a window system

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure, axes) -> str:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
