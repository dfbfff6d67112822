"""From single runs to a table: ratios against plain decoding of the same run, drift and quality beside speed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median

from .bench import Run


@dataclass
class Row:
    """One arm. Ratios are medians over prompts of (plain decoding / this arm), both from the same interleaved run.

    Args:
        nfe, tokens_per_step, accepted_per_step, drift_per_token: means over images.
        fewer_forwards: NFE of plain decoding over NFE of the arm.
        wall_ratio, cpu_ratio: decoding time of plain decoding over that of the arm, wall clock and process time.
        step_ratio: t(W)/t(1), process time of one forward of the arm over one of plain decoding.
        efficiency: cpu_ratio over (fewer_forwards / step_ratio): 1 means the loop adds nothing to the forwards.
        overhead: process time outside the forwards over the time inside.
        subject, background: prompt accuracy, or None without a judge.
        same_as_plain: share of images that are token for token the picture of plain decoding.
    """

    arm: str
    images: int
    nfe: float
    tokens_per_step: float
    accepted_per_step: float
    drift_per_token: float
    fewer_forwards: float
    wall_ratio: float
    wall_low: float
    wall_high: float
    cpu_ratio: float
    step_ratio: float
    efficiency: float
    overhead: float
    subject: float | None
    background: float | None
    same_as_plain: float


def summarise(runs: list[Run], quality: dict[str, tuple[float, float]] | None = None) -> list[Row]:
    """One row per arm, in order of first appearance; plain decoding is the arm called "ar"."""
    plain = {run.number: run for run in runs if run.arm == "ar"}
    return [
        _row(arm, [run for run in runs if run.arm == arm], plain, quality) for arm in dict.fromkeys(r.arm for r in runs)
    ]


def _row(arm: str, runs: list[Run], plain: dict[int, Run], quality) -> Row:
    walls = sorted(plain[run.number].wall / run.wall for run in runs)
    fewer = mean(plain[run.number].nfe for run in runs) / mean(run.nfe for run in runs)
    cpu = median(plain[run.number].cpu / run.cpu for run in runs)
    step = median(run.forward_cpu / run.nfe / (plain[run.number].forward_cpu / plain[run.number].nfe) for run in runs)
    subject, background = (quality or {}).get(arm, (None, None))
    return Row(
        arm=arm,
        images=len(runs),
        nfe=mean(run.nfe for run in runs),
        tokens_per_step=mean(run.tokens_per_step for run in runs),
        accepted_per_step=mean(run.accepted_per_step for run in runs),
        drift_per_token=mean(run.drift_per_token for run in runs),
        fewer_forwards=fewer,
        wall_ratio=median(walls),
        wall_low=_quantile(walls, 0.1),
        wall_high=_quantile(walls, 0.9),
        cpu_ratio=cpu,
        step_ratio=step,
        efficiency=cpu / (fewer / step),
        overhead=median(run.cpu / run.forward_cpu - 1 for run in runs),
        subject=subject,
        background=background,
        same_as_plain=mean(float((run.tokens == plain[run.number].tokens).all()) for run in runs),
    )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


HEADER = (
    "| arm | forwards | tokens/step | accepted/step | fewer forwards | wall clock (10-90 %) | process time | t(W)/t(1) "
    "| efficiency | loop overhead | drift/token | subject | background | same picture |"
)


def markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [HEADER, "|---" * (HEADER.count("|") - 1) + "|"]
    for row in rows:
        cells = [
            row.arm,
            f"{row.nfe:.1f}",
            f"{row.tokens_per_step:.2f}",
            f"{row.accepted_per_step:.2f}",
            f"{row.fewer_forwards:.2f}x",
            f"{row.wall_ratio:.2f}x ({row.wall_low:.2f}-{row.wall_high:.2f})",
            f"{row.cpu_ratio:.2f}x",
            _number(row.step_ratio),
            _number(row.efficiency),
            "-" if row.overhead != row.overhead else f"{100 * row.overhead:.0f} %",
            f"{row.drift_per_token:.4f}",
            "-" if row.subject is None else f"{row.subject:.2f}",
            "-" if row.background is None else f"{row.background:.2f}",
            f"{100 * row.same_as_plain:.0f} %",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.2f}"
