"""Rows as cells of text; no figure of speed without drift and quality in the same line."""

from __future__ import annotations

from .summary import Row, Spread

COLUMNS = (
    ("arm", "method and window W"),
    ("forwards", "target forwards after the prefill, mean"),
    ("fewer forwards", "forwards of plain decoding over those of the arm, all images"),
    ("tokens/step", "tokens per forward: median (10-90 %)"),
    ("accepted/step", "accepted drafts per forward, median"),
    ("wall clock", "seconds of plain decoding over seconds of the arm: median (10-90 %)"),
    ("over transformers", "the same over transformers' own image generation, median"),
    ("over naive", "the same over the naive loop making the same decisions, median"),
    ("process time", "as wall clock, in process time, median"),
    ("t(W)/t(1)", "seconds of one forward over one of plain decoding, median"),
    ("efficiency", "wall clock over tokens/step x t(1)/t(W), median; ! marks less than 0.85"),
    ("loop overhead", "time outside the forwards over time inside, median"),
    ("peak MB", "memory an image needs beyond what was held before"),
    ("drift/token", "total variation from the target spent per token, mean (10-90 %)"),
    ("nats/token", "how improbable the pictures are to the target, mean; plain decoding sets the standard"),
    ("subject", "prompt accuracy of the subject"),
    ("background", "prompt accuracy of the background"),
    ("same picture", "images that are token for token those of plain decoding"),
)


def cells(row: Row) -> list[str]:
    """One text per column of :data:`COLUMNS`; "-" where a figure does not exist."""
    efficiency = _ratio(row.efficiency, suffix="")
    return [
        row.arm,
        f"{row.nfe.mean:.1f}",
        f"{row.fewer_forwards:.2f}x",
        _range(row.tokens_per_step, "", 2),
        f"{row.accepted_per_step.median:.2f}",
        _range(row.over_plain, "x", 2),
        _ratio(row.over_transformers),
        _ratio(row.over_naive),
        _ratio(row.cpu_over_plain),
        _ratio(row.step_ratio, suffix=""),
        f"{efficiency} !" if row.efficient is False else efficiency,
        "-" if row.overhead is None else f"{100 * row.overhead.median:.0f} %",
        "-" if row.peak_memory is None else f"{row.peak_memory / 1e6:.0f}",
        f"{row.drift_per_token.mean:.4f} ({row.drift_per_token.low:.4f}-{row.drift_per_token.high:.4f})",
        f"{row.nats_per_token.mean:.2f}",
        _share(row.subject),
        _share(row.background),
        _share(row.same_as_plain),
    ]


def markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    table = [[name for name, _ in COLUMNS], ["---"] * len(COLUMNS), *map(cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in table)


def naive_lines(rows: list[Row]) -> list[str]:
    """One sentence per arm that also ran in the naive loop."""
    return [
        f"{row.arm}: {row.over_naive.median:.2f}x ({row.over_naive.low:.2f}-{row.over_naive.high:.2f}) faster than the "
        f"naive loop making the same decisions; the same tokens in {_share(row.same_as_naive)} of the images"
        for row in rows
        if row.over_naive is not None
    ]


def _range(spread: Spread, suffix: str, digits: int) -> str:
    return f"{spread.median:.{digits}f}{suffix} ({spread.low:.{digits}f}-{spread.high:.{digits}f})"


def _ratio(spread: Spread | None, suffix: str = "x") -> str:
    return "-" if spread is None else f"{spread.median:.2f}{suffix}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
