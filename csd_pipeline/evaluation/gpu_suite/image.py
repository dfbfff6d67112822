"""One image drawn, and the seconds of its passes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from csd_pipeline.decoding import Progress, RunPass, decode
from csd_pipeline.evaluation.clocks import Clock
from csd_pipeline.evaluation.naive_loop import CopyingSession, decode_naive

from .random_target import RandomTarget


@dataclass
class Image:
    """Tokens [1, N], passes that ran (those on a finished image too), their seconds, and accepted drafts of each."""

    tokens: Tensor
    passes: int
    seconds: float
    accepted: list[int]

    @property
    def seconds_per_pass(self) -> float:
        return self.seconds / self.passes


def draw(
    target: RandomTarget,
    parts: dict,
    run_pass: RunPass | None = None,
    seed: int = 0,
    on_pass: Callable[[Progress], bool] | None = None,
) -> Image:
    """One image in our loop."""
    session = target.open(parts["drafter"].window)
    clock = _started_by_prefill(session, target.device)
    result = decode(
        session,
        target.adapter,
        seeds=[seed],
        warp=target.warp,
        device=target.device,
        run_pass=run_pass,
        on_pass=on_pass,
        **parts,
    )
    clock.__exit__()
    (trace,) = result.traces
    return Image(result.tokens, trace.nfe + trace.wasted_nfe, clock.wall, trace.accepted)


def draw_naively(target: RandomTarget, parts: dict, seed: int = 0) -> Image:
    """One image in the naive loop, its bookkeeping of drift not counted."""
    session = CopyingSession(target.adapter, target.prompt)
    clock = _started_by_prefill(session, target.device)
    result = decode_naive(session, target.adapter, seed=seed, warp=target.warp, device=target.device, **parts)
    clock.__exit__()
    return Image(result.tokens, len(result.accepted), clock.wall - result.bookkeeping.wall, result.accepted)


def _started_by_prefill(session, device: torch.device) -> Clock:
    """A clock that begins, the device synchronised, when the prompt was run."""
    clock, prefill = Clock(device), session.prefill

    def run_prompt():
        logits = prefill()
        clock.__enter__()
        return logits

    session.prefill = run_prompt
    return clock
