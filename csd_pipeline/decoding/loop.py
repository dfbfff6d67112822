"""The one decoding loop. Plain autoregressive decoding is its empty-window case.

It repeats :mod:`one pass <csd_pipeline.decoding.one_pass>` until every image is finished, reads what was committed, and
knows no model, no drafter and no rule by name.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .late_read import LateRead, unread_passes
from .noise import seed_words
from .one_pass import DecodingPass, RunPass
from .sampling import Warp
from .state import DecodingState
from .trace import Trace, TraceRecorder
from .tree_verification import check_tree
from .verification import Verification

if TYPE_CHECKING:
    from csd_pipeline.targets.base import TargetSession


@dataclass
class DecodingResult:
    """Tokens [B, N] int64 and one trace per image that was begun. ``complete`` is False after an interruption."""

    tokens: Tensor
    traces: list[Trace]
    complete: bool = True


@dataclass
class Progress:
    """Handed to the callback after every pass.

    Args:
        passes: target forwards so far, the prefills included.
        counts: committed tokens of every image of the call; on a GPU as they were a pass or two ago.
        collect: brings the recorder up to date.
        recorder: of the run.
    """

    passes: int
    counts: list[int]
    collect: Callable[[], None] = field(repr=False)
    recorder: TraceRecorder = field(repr=False)

    @cached_property
    def tokens(self) -> Tensor:
        """[B, N] int64, all images; positions not committed yet hold 0. To be asked for within the callback."""
        self.collect()
        return self.recorder.tokens

    @property
    def drift_map(self) -> Tensor:
        """[B, N] float32, total variation spent at each committed position; as ``tokens``."""
        self.collect()
        return self.recorder.maps["drift"]

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
    run_pass: RunPass | None = None,
    waiting: Callable[[int, int], TargetSession] | None = None,
    unread: int | None = None,
) -> DecodingResult:
    """Decode images.

    Args:
        session: an opened target session (prompts, cache, guidance rows) of the first images, all that are drawn at
            the same time.
        adapter: the target adapter, for grid and vocabulary.
        seeds: one 64-bit seed per image.
        warp: guidance, temperature, top-k, top-p; read anew at every pass.
        drafter, relaxation, alignment_filter: the parts of the method.
        maps: record the per-token maps of the trace.
        on_pass: called after every pass; returning False stops decoding.
        run_pass: runs a pass after the prefill: as it is written (None), compiled, or captured.
        waiting: ``f(first, count)`` opens a session of the images ``first .. first + count - 1``, which take the place
            of finished ones; their prompts are no longer than those of ``session``. None: no more than ``session`` has.
        unread: passes that may be launched before the host acts on what earlier ones did; None: what suits the device.

    Raises:
        ValueError: guidance without unconditional rows, a rule that can not serve this target, or a tree of drafts with
            a rule other than the exact one.
        NonFiniteLogits: the target's logits are NaN or infinite.
    """
    if warp.guided and not session.guided:
        raise ValueError("guidance needs unconditional rows in the session; open it with them, or use guidance_scale=1")
    check_tree(drafter, relaxation, alignment_filter)
    relaxation.prepare(adapter)
    if waiting is None and len(seeds) != session.images:
        raise ValueError(f"one seed per image: got {len(seeds)} seeds for a session of {session.images} images")
    parts = (drafter, relaxation, alignment_filter)
    loop = _Loop(adapter, seeds, warp, parts, maps, device, run_pass or RunPass(), unread)
    loop.begin(session)
    while loop.unfinished:
        if len(loop.reports) <= loop.unread and loop.run is not None:
            loop.launch()
            continue
        loop.read()
        if on_pass is not None and on_pass(loop.progress()) is False:
            while loop.reports:  # tokens and counts of one and the same pass
                loop.read()
            loop.collect()
            break
        loop.replace_finished(waiting)
    complete = not loop.unfinished
    loop.forget_unread()
    return DecodingResult(
        loop.recorder.tokens[: loop.begun], loop.recorder.finish(adapter.grid)[: loop.begun], complete
    )


class _Loop:
    """One call of :func:`decode`: which image is in which slot, and what the host knows of them."""

    def __init__(self, adapter, seeds, warp, parts, maps, device, run_pass: RunPass, unread: int | None):
        self.adapter, self.seeds, self.warp, self.parts, self.maps = adapter, seeds, warp, parts, maps
        self.run_pass, self.total = run_pass, adapter.grid.tokens
        self.words = seed_words(seeds, device)
        self.device = self.words.device
        self.unread = unread_passes(self.device) if unread is None else unread
        self.recorder = TraceRecorder(seeds, self.total, self.device, maps)
        self.counts, self.begun, self.passes = [0] * len(seeds), 0, 0
        self.run: DecodingPass | None = None
        self.slots: list[int | None] = []  # the image in every slot; None: a finished one stays there
        self.finished: list[int] = []  # images that were read to be finished, until their slots are looked at
        self.reports: deque[LateRead] = deque()

    @property
    def unfinished(self) -> bool:
        return min(self.counts, default=self.total) < self.total

    def begin(self, session: TargetSession) -> None:
        """Run the first prompts."""
        run = self._open(session)
        room = self.run_pass.room_for(run)
        if room is not None:
            session.run_prompt_only()
        self._prepare_noise(run, stays=room is None)
        self.slots = list(range(self.begun))
        self._prefill(run, self.slots)
        if room is None:
            self.run = run
            self.run_pass.settle(run)
        else:
            room.admit(self.slots, run)
            self.run = room

    def launch(self) -> None:
        """One pass over all slots."""
        self.run.state.counts = [self.total if image is None else self.counts[image] for image in self.slots]
        length = self.run.prepare(self.run_pass, len(self.reports))
        self.reports.append(LateRead(self.run_pass(self.run, length), self.slots, self.unread > 0))

    def read(self) -> None:
        """The one host read of a pass: committed tokens per image, and whether the laws were numbers."""
        counts, sound = self.reports.popleft().wait()
        if not math.isfinite(sound):
            raise NonFiniteLogits(
                "the target's logits are not finite: half precision may have overflowed (load the target with "
                "dtype=torch.bfloat16 or torch.float32), or guidance_scale or temperature is extreme"
            )
        self.passes += 1
        for image, count in counts:
            if self.counts[image] == self.total:
                self.recorder.traces[image].wasted_nfe += 1
                continue
            self.recorder.advance(image, self.counts[image], count)
            self.counts[image] = count
            if count == self.total:
                self.finished.append(image)
        if self.finished:
            self.collect(self.finished)

    def forget_unread(self) -> None:
        """Passes that ran on finished images before the host knew were for nothing."""
        for report in self.reports:
            for image in report.images:
                if image is not None and self.counts[image] == self.total:
                    self.recorder.traces[image].wasted_nfe += 1

    def collect(self, images: list[int] | None = None) -> None:
        """Copy what the slots hold of the images (None: of all) to the recorder."""
        for slot, image in enumerate(self.slots):
            if image is not None and (images is None or image in images):
                self.recorder.collect(image, slot, self.counts[image], self.run.state)

    def progress(self) -> Progress:
        return Progress(self.passes, list(self.counts), self.collect, self.recorder)

    def replace_finished(self, waiting: Callable[[int, int], TargetSession] | None) -> None:
        """Finished images make room for others, or leave."""
        if not self.finished:
            return
        free, self.finished = sorted(map(self.slots.index, self.finished)), []
        count = min(len(free), len(self.seeds) - self.begun)
        if waiting is not None and count:
            first, taken, free = self.begun, free[:count], free[count:]
            session = waiting(first, count)
            session.run_prompt_only()
            run, images = self._open(session), list(range(first, first + count))
            self._prepare_noise(run, stays=False)
            self._prefill(run, images)
            self.run.admit(taken, run)
            for slot, image in zip(taken, images, strict=True):
                self.slots[slot] = image
        if not self.run_pass.shrinks:
            for slot in free:
                self.slots[slot] = None
        elif free and len(free) < len(self.slots):
            rows = sorted(set(range(len(self.slots))) - set(free))
            self.run.keep(rows)
            self.slots = [self.slots[slot] for slot in rows]

    def _open(self, session: TargetSession) -> DecodingPass:
        words = self.words[self.begun : self.begun + session.images].clone()
        self.begun += session.images
        state = DecodingState.start(self.adapter.grid, self.adapter.vocabulary, words, self.maps)
        drafter, relaxation, alignment_filter = self.parts
        return DecodingPass(session, state, drafter, drafter.begin(state), self.warp, relaxation, alignment_filter)

    def _prepare_noise(self, run: DecodingPass, stays: bool) -> None:
        """A run that only brings newcomers makes none ahead; one that stays makes that of its drafts before its first
        pass, which may be traced."""
        if stays and run.drafter.shares_noise and run.window > 1:
            run.state.noise.make_gumbel_ahead(run.state.vocabulary)
        if self.run_pass.fuses:
            run.state.noise.make_within_passes()

    def _prefill(self, run: DecodingPass, images: list[int]) -> None:
        self.reports.append(LateRead(run.prefill(), images, self.unread > 0))
        run.state.counts = [1] * len(images)


__all__ = ["DecodingResult", "NonFiniteLogits", "Progress", "Verification", "decode"]
