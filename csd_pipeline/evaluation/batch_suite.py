"""Images per second by batch size: what drawing together brings, and which window pays then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import Exact

from .clocks import Clock


@dataclass(frozen=True)
class BatchArm:
    """Exact decoding with Gumbel-coupled drafts; every arm draws the same pictures.

    Args:
        window: tokens per forward; 1 is plain decoding.
        batch: images drawn at once.
        refill: the next image begins as soon as one is finished.
    """

    window: int
    batch: int
    refill: bool = False


@dataclass(frozen=True)
class BatchRow:
    """Medians over rounds; ratios are taken within a round, above 1 the arm is faster.

    Args:
        arm: what was measured.
        images_per_second: wall clock, pixels left out.
        over_single: over the same window with one image at once.
        over_plain: over plain decoding of the same batch size.
        forwards: target forwards for all images, prefills included.
    """

    arm: BatchArm
    images_per_second: float
    over_single: float
    over_plain: float
    forwards: int

    def to_dict(self) -> dict:
        return asdict(self)


def arms_of(batches: tuple[int, ...], windows: tuple[int, ...]) -> list[BatchArm]:
    """Plain decoding and every window, at one image and at every batch size; the larger ones with refill, too."""
    sizes = dict.fromkeys((1, *batches))
    arms = [BatchArm(window, batch) for window in dict.fromkeys((1, *windows)) for batch in sizes]
    return arms + [BatchArm(arm.window, arm.batch, True) for arm in arms if arm.batch > 1 and arm.window > 1]


def measure(
    pipeline, arms: list[BatchArm], prompts: list[str], seed: int, rounds: int, sampling: dict, on_round: Callable
) -> list[BatchRow]:
    """Every arm draws all prompts once per round, arms interleaved, after a round that warms up.

    Args:
        pipeline: its target draws; its own parts are put back afterwards.
        prompts: prompt i has seed ``seed + i``.
        sampling: guidance, temperature and truncation of all arms.
        on_round: called with the number of finished rounds.
    """
    own = (pipeline.drafter, pipeline.relaxation, pipeline.alignment_filter)
    seconds, forwards = {arm: [] for arm in arms}, {}
    try:
        for number in range(rounds + 1):
            for arm in arms:
                taken, forwards[arm] = _draw(pipeline, arm, prompts, seed, sampling)
                if number:
                    seconds[arm].append(taken)
            on_round(number)
    finally:
        pipeline.register_modules(drafter=own[0], relaxation=own[1], alignment_filter=own[2])
    return [_row(arm, seconds, len(prompts), forwards[arm]) for arm in arms]


def _draw(pipeline, arm: BatchArm, prompts: list[str], seed: int, sampling: dict) -> tuple[float, int]:
    drafter = JacobiDrafter(arm.window, "gumbel")
    pipeline.register_modules(drafter=drafter, relaxation=Exact(), alignment_filter=None)
    options = {"seed": seed, "batch_size": arm.batch, "refill": arm.refill, "output_type": "latent", **sampling}
    with Clock(pipeline.device) as clock:
        pipeline(prompts, **options)
    return clock.wall, pipeline.num_timesteps


def _row(arm: BatchArm, seconds: dict[BatchArm, list[float]], images: int, forwards: int) -> BatchRow:
    own = np.array(seconds[arm])
    single, plain = (np.array(seconds[BatchArm(*of)]) for of in ((arm.window, 1), (1, arm.batch)))
    figures = (np.median(images / own), np.median(single / own), np.median(plain / own))
    return BatchRow(arm, *map(float, figures), forwards)


def markdown(rows: list[BatchRow]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| method | batch | images/s | over one at once | over plain, same batch | forwards for all images |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        arm = row.arm
        name = "plain decoding" if arm.window == 1 else f"exact-gumbel W={arm.window}"
        batch = f"{arm.batch}, refilled" if arm.refill else str(arm.batch)
        lines.append(
            f"| {name} | {batch} | {row.images_per_second:.2f} | {row.over_single:.2f}x | {row.over_plain:.2f}x | "
            f"{row.forwards} |"
        )
    return "\n".join(lines)
