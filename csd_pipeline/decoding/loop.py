"""The one decoding loop. Plain autoregressive decoding is its empty-window case.

    propose -> target forward -> warp -> verify -> observe -> commit

It knows no model, no drafter and no rule by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .noise import seed_words
from .sampling import Warp, force_tokens
from .state import DecodingState
from .trace import Trace, TraceRecorder
from .tree import DraftTree
from .tree_verification import check_tree, verify_tree
from .verification import Verification, relaxes, verify, verify_shared_noise
from .window import Window

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
    recorder = TraceRecorder(seeds, grid.tokens, state.tokens.device, maps)
    finished = torch.zeros(images, grid.tokens, dtype=torch.int64, device=state.tokens.device)
    draft_run = drafter.begin(state)
    relaxed = relaxes(relaxation, alignment_filter)
    ledger = relaxed and alignment_filter is not None and alignment_filter.uses_ledger
    share_noise = drafter.shares_noise and not relaxed
    active, totals = list(range(images)), [0] * images
    index = torch.arange(images, device=state.tokens.device)

    while active:
        logits, window, tree = _forward(session, state, draft_run, drafter.window)
        window.target_laws = _laws(warp, logits, state, window, tree)
        if tree is not None:
            window, outcome, path = verify_tree(window, tree, state.noise, state.passes, share_noise)
            session.adopt(state.committed, path)
        elif share_noise:
            outcome = verify_shared_noise(window, state.noise)
        else:
            outcome = verify(window, relaxation, alignment_filter, state.noise, state.passes)
        recorder.record(window, outcome, index, state.passes, relaxed)
        draft_run.observe(state, window, outcome)
        if ledger:
            state.charge(window, outcome)
        state.commit(window, outcome)

        before, state.counts = state.counts, _read_counts(state, window)
        for image, old, new in zip(active, before, state.counts, strict=True):
            recorder.advance(image, old, new)
            totals[image] = new
        rows = [row for row, count in enumerate(state.counts) if count < grid.tokens]
        if on_pass is not None or len(rows) < len(active):
            finished[index] = state.tokens[:, :-1]
        progress = Progress(state.passes, list(totals), finished, recorder.maps["drift"][:, :-1])
        if on_pass is not None and on_pass(progress) is False:
            return DecodingResult(finished, recorder.finish(grid), complete=not rows)
        if len(rows) < len(active):
            active, index = [active[row] for row in rows], _keep(rows, index, session, state, draft_run)
    return DecodingResult(finished, recorder.finish(grid))


def _forward(
    session: TargetSession, state: DecodingState, draft_run, window_size: int
) -> tuple[Tensor, Window, DraftTree | None]:
    """Run the target over the committed token and the drafts (over the prompt in the first pass)."""
    device = state.tokens.device
    if state.counts[0] == 0:
        none = torch.zeros(len(state.counts), 0, device=device)
        empty = none.new_zeros(len(state.counts), 0, state.vocabulary)
        zeros = torch.zeros_like(state.committed)
        return session.prefill(), Window(empty, empty, none.long(), none.bool(), zeros, state.committed), None
    lengths = state.room().clamp(max=window_size - 1)
    length = min(window_size - 1, state.grid.tokens - min(state.counts) - 1)
    drafts, laws, fresh = draft_run.propose(state, length)
    tree = draft_run.branch(state, drafts, laws)
    if tree is None:
        tokens, shape = torch.cat([state.last_tokens, drafts], 1), None
    else:
        tokens, shape = tree.tokens(state.last_tokens, drafts), tree.shape
    logits = session.step(tokens, state.committed, max(state.counts), shape)
    window = Window(laws, laws, drafts, fresh, lengths, state.committed, state.spent, state.grid.tokens)
    window.positions = state.upcoming(length + 1)  # the same tensor: its noise is not made twice
    return logits, window, tree


def _laws(warp: Warp, logits: Tensor, state: DecodingState, window: Window, tree: DraftTree | None) -> Tensor:
    laws = warp.laws(logits, images=len(state.counts))
    marks = state.vocabulary - laws.shape[-1]  # tokens that are only ever forced have no logits
    if marks:
        laws = torch.nn.functional.pad(laws, (0, marks))
    positions = window.positions if tree is None else window.start[:, None] + tree.shape.place
    forced = state.forced(positions)
    return laws if forced is None else force_tokens(laws, forced)


def _read_counts(state: DecodingState, window: Window) -> list[int]:
    """The one host read of a pass: committed tokens per image, and whether the laws were numbers."""
    sound = window.target_laws[..., 0].sum()  # laws are probabilities or not numbers
    *counts, sound = torch.cat([state.committed.float(), sound.view(1)]).tolist()
    if not math.isfinite(sound):
        raise NonFiniteLogits(
            "the target's logits are not finite: half precision may have overflowed (load the target with "
            "dtype=torch.bfloat16 or torch.float32), or guidance_scale or temperature is extreme"
        )
    return [int(count) for count in counts]  # far below 2**24, so exact in float32


def _keep(rows: list[int], index: Tensor, session: TargetSession, state: DecodingState, draft_run) -> Tensor:
    """Finished images leave the batch: session, state and drafter keep only ``rows``."""
    kept = torch.tensor(rows, dtype=torch.int64, device=index.device)
    if rows:
        session.keep(kept)
        state.keep(kept, [state.counts[row] for row in rows])
        draft_run.keep(kept)
    return index[kept]


__all__ = ["DecodingResult", "NonFiniteLogits", "Progress", "Verification", "decode"]
