"""From single runs to rows: ratios against plain decoding of the same prompt, drift and quality beside every speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from csd_pipeline.recipe import describe

from .arms import PLAIN, PLAIN_COMPILED, TRANSFORMERS, Arm
from .runs import Run

EFFICIENCY_WANTED = 0.85


@dataclass(frozen=True)
class Spread:
    """Median, 10th and 90th percentile, and mean over images."""

    median: float
    low: float
    high: float
    mean: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        low, median, high = np.quantile(values, (0.1, 0.5, 0.9)).tolist()
        return cls(median, low, high, float(np.mean(values)))


@dataclass
class Row:
    """One arm. Ratios are taken per prompt, both images from the same interleaved run; above 1 the arm is faster.

    Args:
        arm: its name.
        images: number of images.
        nfe, tokens_per_step, accepted_per_step: counts after the prefill.
        fewer_forwards: all forwards of plain decoding over all forwards of the arm.
        histogram: entry k: passes that accepted exactly k drafts.
        tested_by_index, accepted_by_index: entry i: passes that tested their draft i (all before it were accepted),
            and those of them that accepted it.
        seconds: wall-clock seconds of decoding an image.
        over_plain, over_transformers, over_naive: wall-clock ratio over plain decoding, over transformers' own
            generation, and over the naive loop making the same decisions; None where there is no such arm.
        cpu_over_plain: process-time ratio over plain decoding.
        step_ratio: t(W)/t(1), seconds of one forward of the arm over one of plain decoding; of a compiled arm, both
            compiled.
        efficiency: speed over plain decoding (compiled, if the arm is) over ``tokens/step * t(1)/t(W)``: 1 means the
            loop adds nothing to the forwards.
        overhead: seconds of the loop outside the forwards over those inside.
        peak_memory: bytes beyond what was held before an image, or None.
        drift_per_token: total variation from the target spent per token.
        nats_per_token: mean ``-ln p`` of the pictures under the target.
        subject, background: prompt accuracy, or None without a judge.
        same_as_plain: share of images that are token for token the picture of plain decoding.
        same_as_naive: share of images that are token for token those of the naive loop with the same parts, or None.
    """

    arm: str
    images: int
    nfe: Spread
    tokens_per_step: Spread
    accepted_per_step: Spread
    fewer_forwards: float
    histogram: list[int]
    tested_by_index: list[int]
    accepted_by_index: list[int]
    seconds: Spread
    over_plain: Spread
    over_transformers: Spread | None
    over_naive: Spread | None
    cpu_over_plain: Spread
    step_ratio: Spread | None
    efficiency: Spread | None
    overhead: Spread | None
    peak_memory: int | None
    drift_per_token: Spread
    nats_per_token: Spread
    subject: float | None
    background: float | None
    same_as_plain: float
    same_as_naive: float | None

    @property
    def acceptance_by_index(self) -> list[float]:
        """Share of the tested drafts at each index of the window that were accepted."""
        return [a / t for a, t in zip(self.accepted_by_index, self.tested_by_index, strict=True)]

    @property
    def efficient(self) -> bool | None:
        """Whether the wall clock reaches 0.85 x tokens/step x t(1)/t(W)."""
        return None if self.efficiency is None else self.efficiency.median >= EFFICIENCY_WANTED

    def to_dict(self) -> dict:
        return asdict(self) | {"acceptance_by_index": self.acceptance_by_index, "efficient": self.efficient}


def summarise(runs: list[Run], arms: list[Arm], peak_memory: dict[str, int | None] | None = None) -> list[Row]:
    """One row per arm, in order of first appearance.

    Args:
        runs: of all arms, those of the plain arm among them.
        arms: what ran, to find the naive twin of an arm.
        peak_memory: bytes per arm.
    """
    groups = {name: [run for run in runs if run.arm == name] for name in dict.fromkeys(run.arm for run in runs)}
    twins = naive_twins(arms)
    compiled = {arm.name for arm in arms if arm.loop == "compiled"}
    rows = []
    for name in groups:
        base = PLAIN_COMPILED if name in compiled else PLAIN
        rows.append(_row(groups, name, base, twins.get(name), (peak_memory or {}).get(name)))
    return rows


def naive_twins(arms: list[Arm]) -> dict[str, str]:
    """{arm: the arm of the naive loop with the same parts}."""
    naive = [arm for arm in arms if arm.loop == "naive"]
    same = [(arm, twin) for arm in arms for twin in naive if arm.loop != "naive" and _same_parts(arm, twin)]
    return {arm.name: twin.name for arm, twin in same if arm.seed_offset == twin.seed_offset}


def acceptance_counts(runs: list[Run]) -> tuple[list[int], list[int]]:
    """Per draft index: passes that tested the draft there, and those that accepted it."""
    pairs = [pair for run in runs if run.drafted for pair in zip(run.accepted, run.drafted, strict=True)]
    indices = range(max((min(a + 1, d) for a, d in pairs), default=0))
    return [sum(a >= i < d for a, d in pairs) for i in indices], [sum(a > i for a, _ in pairs) for i in indices]


def _row(groups: dict[str, list[Run]], name: str, base: str, twin: str | None, peak_memory: int | None) -> Row:
    runs, plain = groups[name], {run.number: run for run in groups[PLAIN]}
    same_loop = {run.number: run for run in groups[base]}
    naive = {run.number: run for run in groups.get(twin, ())}
    tested, accepted = acceptance_counts(runs)
    histogram = np.bincount([count for run in runs for count in run.accepted]).tolist()
    watched = all(run.forward_wall is not None for run in runs)
    return Row(
        arm=name,
        images=len(runs),
        nfe=_spread(runs, lambda run: run.nfe),
        tokens_per_step=_spread(runs, lambda run: run.tokens_per_step),
        accepted_per_step=_spread(runs, lambda run: run.accepted_per_step),
        fewer_forwards=sum(plain[run.number].nfe for run in runs) / sum(run.nfe for run in runs),
        histogram=histogram,
        tested_by_index=tested,
        accepted_by_index=accepted,
        seconds=_spread(runs, lambda run: run.wall),
        over_plain=_spread(runs, lambda run: plain[run.number].wall / run.wall),
        over_transformers=_over(groups, TRANSFORMERS, runs),
        over_naive=_over(groups, twin, runs),
        cpu_over_plain=_spread(runs, lambda run: plain[run.number].cpu / run.cpu),
        step_ratio=_spread(runs, lambda run: _step_ratio(run, same_loop[run.number])) if watched else None,
        efficiency=_spread(runs, lambda run: _efficiency(run, same_loop[run.number])) if watched else None,
        overhead=_spread(runs, lambda run: run.overhead) if watched else None,
        peak_memory=peak_memory,
        drift_per_token=_spread(runs, lambda run: run.drift_per_token),
        nats_per_token=_spread(runs, lambda run: run.nats_per_token),
        subject=_share(runs, lambda run: run.subject),
        background=_share(runs, lambda run: run.background),
        same_as_plain=_share(runs, lambda run: _same(run, plain[run.number])),
        same_as_naive=_share(runs, lambda run: _same(run, naive[run.number])) if naive else None,
    )


def _spread(runs: list[Run], figure: Callable[[Run], float]) -> Spread:
    return Spread.of([figure(run) for run in runs])


def _share(runs: list[Run], holds: Callable[[Run], bool | None]) -> float | None:
    values = [holds(run) for run in runs]
    return None if None in values else float(np.mean(values))


def _over(groups: dict[str, list[Run]], other: str | None, runs: list[Run]) -> Spread | None:
    if other not in groups:
        return None
    seconds = {run.number: run.wall for run in groups[other]}
    return _spread(runs, lambda run: seconds[run.number] / run.wall)


def _step_ratio(run: Run, plain: Run) -> float:
    return run.forward_wall / run.nfe / (plain.forward_wall / plain.nfe)


def _efficiency(run: Run, plain: Run) -> float:
    return plain.wall / run.wall / (run.tokens_per_step / _step_ratio(run, plain))


def _same(run: Run, other: Run) -> bool:
    return bool((run.tokens == other.tokens).all())


def _same_parts(arm: Arm, other: Arm) -> bool:
    return all(describe(arm.parts[name]) == describe(other.parts[name]) for name in arm.parts)
