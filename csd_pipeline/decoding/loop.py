"""The one decoding loop. Plain autoregressive decoding is its empty-window case.

It repeats :mod:`one pass <csd_pipeline.decoding.one_pass>` until every image is finished, reads what was committed, and
knows no model, no drafter and no rule by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .noise import seed_words
from .one_pass import DecodingPass, RunPass, prefill_pass, window_pass
from .sampling import Warp
from .state import DecodingState
from .trace import Trace, TraceRecorder
from .tree_verification import check_tree
from .verification import Verification

if TYPE_CHECKING:
    from csd_pipeline.targets.base import TargetSession


@dataclass
class DecodingResult:
    """Tokens [B, N] int64 and one trace per image. ``complete`` is False after an interruption."""

    tokens: Tensor
    traces: list[Trace]
    complete: bool = True


@dataclass
class Progress:
    """Handed to the callback after every pass.

    Args:
        passes: target forwards so far, the prefill included.
        counts: committed tokens of every image of the batch.
        tokens: [B, N] int64, all images; positions not committed yet hold 0.
        drift_map: [B, N] float32, total variation spent at each committed position.
    """

    passes: int
    counts: list[int]
    tokens: Tensor
    drift_map: Tensor

    @property
    def drift(self) -> Tensor:
        """[B] float32, total variation every image has spent so far; stays on the device."""
        return self.drift_map.sum(1)


class NonFiniteLogits(RuntimeError):
    """The target returned NaN or infinite logits."""


@torch.no_grad()
def decode(
    session: TargetSession,
    adapter,
    *,
    seeds: list[int],
    warp: Warp,
    drafter,
    relaxation,
    alignment_filter=None,
    maps: bool = False,
    on_pass: Callable[[Progress], bool] | None = None,
    device: torch.device | str = "cpu",
    run_pass: RunPass = window_pass,
) -> DecodingResult:
    """Decode one batch of images.

    Args:
        session: an opened target session (prompts, cache, guidance rows).
        adapter: the target adapter, for grid and vocabulary.
        seeds: one 64-bit seed per image.
        warp: guidance, temperature, top-k, top-p; read anew at every pass.
        drafter, relaxation, alignment_filter: the parts of the method.
        maps: record the per-token maps of the trace.
        on_pass: called after every pass; returning False stops decoding.
        run_pass: runs a pass after the prefill: :func:`window_pass`, or that compiled.

    Raises:
        ValueError: guidance without unconditional rows, a rule that can not serve this target, or a tree of drafts with
            a rule other than the exact one.
        NonFiniteLogits: the target's logits are NaN or infinite.
    """
    if warp.guided and session.rows == session.images:
        raise ValueError("guidance needs unconditional rows in the session; open it with them, or use guidance_scale=1")
    check_tree(drafter, relaxation, alignment_filter)
    relaxation.prepare(adapter)
    grid, images = adapter.grid, len(seeds)
    state = DecodingState.start(grid, adapter.vocabulary, seed_words(seeds, device))
    device = state.tokens.device
    recorder = TraceRecorder(seeds, grid.tokens, device, maps)
    finished = torch.zeros(images, grid.tokens, dtype=torch.int64, device=device)
    run = DecodingPass(
        session,
        state,
        drafter,
        drafter.begin(state),
        warp,
        relaxation,
        alignment_filter,
        recorder,
        torch.arange(images, device=device),
        shape_is_fixed=run_pass is not window_pass,
    )
    active, totals, passes = list(range(images)), [0] * images, 0

    while active:
        length = run.prepare(passes)
        report = run_pass(run, length) if passes else prefill_pass(run)
        passes += 1
        before, state.counts = state.counts, _read_counts(report)
        for image, old, new in zip(active, before, state.counts, strict=True):
            recorder.advance(image, old, new)
            totals[image] = new
        rows = [row for row, count in enumerate(state.counts) if count < grid.tokens]
        if on_pass is not None or len(rows) < len(active):
            finished[run.images] = state.tokens[:, :-1]
        progress = Progress(passes, list(totals), finished, recorder.maps["drift"][:, :-1])
        if on_pass is not None and on_pass(progress) is False:
            return DecodingResult(finished, recorder.finish(grid), complete=not rows)
        if len(rows) < len(active):
            active = [active[row] for row in rows]
            _keep(rows, run)
    return DecodingResult(finished, recorder.finish(grid))


def _read_counts(report: Tensor) -> list[int]:
    """The one host read of a pass: committed tokens per image, and whether the laws were numbers."""
    *counts, sound = report.tolist()
    if not math.isfinite(sound):
        raise NonFiniteLogits(
            "the target's logits are not finite: half precision may have overflowed (load the target with "
            "dtype=torch.bfloat16 or torch.float32), or guidance_scale or temperature is extreme"
        )
    return [int(count) for count in counts]


def _keep(rows: list[int], run: DecodingPass) -> None:
    """Finished images leave the batch: session, state and drafter keep only ``rows``."""
    kept = torch.tensor(rows, dtype=torch.int64, device=run.images.device)
    if rows:
        run.session.keep(kept)
        run.state.keep(kept, [run.state.counts[row] for row in rows])
        run.draft_run.keep(kept)
    run.images = run.images[kept]


__all__ = ["DecodingResult", "NonFiniteLogits", "Progress", "Verification", "decode"]
