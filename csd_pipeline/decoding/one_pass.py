"""One pass over the window of every image, the prefill apart: propose, forward, warp, verify, observe, commit.

:func:`window_pass` holds no Python that depends on what was drawn: shapes follow from the number of drafts and from
what the host prepared (noise, reach of attention and, as written, what it knows of the counts), everything else stays
on the device and is changed in place. So it can be traced whole by torch.compile and captured in a CUDA graph; run
eagerly it is the specification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .indexing import filled
from .sampling import Warp, force_tokens
from .state import DecodingState
from .tree import DraftTree
from .tree_verification import verify_tree
from .verification import relaxes, verify, verify_shared_noise
from .window import Window

if TYPE_CHECKING:
    from csd_pipeline.targets.base import TargetSession


@dataclass
class DecodingPass:
    """What a pass works on: the target's session, the state of the images, and the method.

    Args:
        draws: number of the next pass, of each image.
        limit: what the shape of the forward depends on besides the window, from the session.
        full: every draft of the next pass is a real one, inside its image, as far as the host knows; False for passes
            that have one shape, which may be replayed when that is not so.
        traced_as: what a compiled pass knows this one by.
        traces: of compiled functions, found to hold for this run, by function and settings.
    """

    session: TargetSession
    state: DecodingState
    drafter: object
    draft_run: object
    warp: Warp
    relaxation: object
    alignment_filter: object
    draws: list[int] = field(default_factory=list)
    limit: int = 0
    full: bool = False
    traced_as: tuple | None = None
    traces: dict[tuple, object] = field(default_factory=dict)

    def __post_init__(self):
        self.relaxed = relaxes(self.relaxation, self.alignment_filter)
        self.share_noise = self.drafter.shares_noise and not self.relaxed
        # asked once, not in every pass: what the host does between two passes is short, a look-up in a config is not
        self.window, self.extra_tokens = min(self.drafter.window, self.state.grid.tokens), self.drafter.extra_tokens
        self.ledger = self.relaxed and self.alignment_filter is not None and self.alignment_filter.uses_ledger
        self.draws = [0] * len(self.state.counts)

    @property
    def images(self) -> int:
        return len(self.state.counts)

    def prepare(self, run_pass: RunPass, unread: int = 0) -> int:
        """The host's part before a pass after the prefill; returns how many drafts it verifies.

        Args:
            run_pass: what will run it.
            unread: passes whose outcome the host has not read; they may have committed a whole window each.
        """
        total = self.state.grid.tokens
        length = self.window - 1
        if not run_pass.one_shape:
            length = min(length, total - min(self.state.counts) - 1)
        longest = min(max(self.state.counts) + unread * self.window, total)
        self.limit = self.session.reach(longest, 1 + length + self.extra_tokens, run_pass.bucket)
        self.full = not run_pass.one_shape and longest + length < total
        self.state.row_above = not run_pass.one_shape and min(self.state.counts) >= self.state.grid.columns
        self._number()
        return length

    def _number(self) -> None:
        self.state.noise.prepare(self.draws, self.full)
        self.draws = [draw + 1 for draw in self.draws]

    def prefill(self) -> Tensor:
        """Run the prompt and draw the first token of every image; returns what :func:`window_pass` does."""
        self._number()
        state = self.state
        none = torch.zeros(self.images, 0, device=state.tokens.device)
        empty = none.new_zeros(self.images, 0, state.vocabulary)
        zeros = torch.zeros_like(state.committed)
        window = Window(empty, empty, none.long(), none.bool(), zeros, zeros)
        return _finish(self, self.session.prefill(), window, None)

    def keep(self, rows: list[int]) -> None:
        """Drop every image but ``rows``."""
        kept = torch.tensor(rows, dtype=torch.int64, device=self.state.tokens.device)
        self.session.keep(kept)
        self.state.keep(kept, [self.state.counts[row] for row in rows])
        self.draft_run.keep(kept)
        self.draws = [self.draws[row] for row in rows]

    def admit(self, slots: list[int], newcomers: DecodingPass) -> None:
        """Put images whose prefill was run elsewhere in the place of those in ``slots``; no storage moves."""
        index = torch.tensor(slots, dtype=torch.int64, device=self.state.tokens.device)
        self.session.admit(index, newcomers.session)
        self.state.admit(slots, index, newcomers.state)
        self.draft_run.admit(index, newcomers.draft_run)
        for slot, draw in zip(slots, newcomers.draws, strict=True):
            self.draws[slot] = draw


class RunPass:
    """Runs passes as they are written, one operation after the other.

    Attributes:
        one_shape: always draft a whole window, also where the image ends earlier.
        bucket: attention reads the cache up to a multiple of this; larger ones mean fewer shapes.
        shrinks: finished images leave the batch; otherwise they stay in it, untouched, until all are finished.
        fuses: operations on few numbers cost next to nothing, so noise is made where it is used instead of ahead.
        kind: what else decides how long a pass takes, in words.
    """

    kind = "written"
    one_shape, bucket, shrinks, fuses = False, 64, True, False

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        return window_pass(run, length)

    def alike(self, work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """``work``, a function of tensors, run as passes are, so that it can be timed.

        What it returns may repeat the first call with arguments of these shapes, whatever the values.
        """
        return work

    def room_for(self, run: DecodingPass) -> DecodingPass | None:
        """An earlier run whose storage can take the images of this one, before their prefill; None: its own."""
        return None

    def settle(self, run: DecodingPass) -> None:
        """Told of a run that keeps its own storage."""

    def check_device(self, device: torch.device) -> None:
        """Raise ValueError if passes can not be run this way on ``device``."""

    def check_drafter(self, drafter) -> None:
        """Raise ValueError if passes of this drafter can not be run this way."""


class WatchedPass(RunPass):
    """Runs passes as another does; a subclass does something besides.

    Args:
        run_pass: what runs them.
    """

    def __init__(self, run_pass: RunPass):
        self.run_pass = run_pass
        settings = ("kind", "one_shape", "bucket", "shrinks", "fuses")
        for name in (*settings, "alike", "room_for", "settle", "check_device", "check_drafter"):
            setattr(self, name, getattr(run_pass, name))

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        return self.run_pass(run, length)


def window_pass(run: DecodingPass, length: int) -> Tensor:
    """Verify ``length`` drafts of every image in one target forward and commit what is accepted.

    Args:
        run: what to work on; changed in place.
        length: drafts per image.

    Returns:
        [B + 1] float32: committed tokens of every image, then a number that is finite if the target's laws are.
    """
    state = run.state
    lengths = filled(length, run.images, 1, state.tokens.device)[:, 0] if run.full else state.room(run.window - 1)
    drafts, laws, fresh = run.draft_run.propose(state, length)
    tree = run.draft_run.branch(state, drafts, laws)
    if tree is None:
        tokens, shape = torch.cat([state.last_tokens, drafts], 1) if length else state.last_tokens, None
    else:
        tokens, shape = tree.tokens(state.last_tokens, drafts), tree.shape
    logits = run.session.step(tokens, state.committed, None, shape)
    window = Window(laws, laws, drafts, fresh, lengths, state.committed, state.spent, state.grid.tokens, run.full)
    window.positions = state.upcoming(length + 1)  # the same tensor: its noise is not made twice
    return _finish(run, logits, window, tree)


def _finish(run: DecodingPass, logits: Tensor, window: Window, tree: DraftTree | None) -> Tensor:
    state = run.state
    window.target_laws = _laws(run.warp, logits, state, window, tree)
    if tree is not None:
        window, outcome, path = verify_tree(window, tree, state.noise, state.passes, run.share_noise)
        run.session.adopt(state.committed, path)
    elif run.share_noise:
        outcome = verify_shared_noise(window, state.noise)
    else:
        outcome = verify(window, run.relaxation, run.alignment_filter, state.noise, state.passes)
    run.draft_run.observe(state, window, outcome)
    if run.ledger:
        state.charge(window, outcome)
    state.commit(window, outcome, run.relaxed)
    sound = window.target_laws[..., 0].sum()  # laws are probabilities or not numbers
    return torch.cat([state.committed.float(), sound.view(1)])  # counts are far below 2**24, so exact in float32


def _laws(warp: Warp, logits: Tensor, state: DecodingState, window: Window, tree: DraftTree | None) -> Tensor:
    laws = warp.laws(logits, images=len(state.tokens))
    marks = state.vocabulary - laws.shape[-1]  # tokens that are only ever forced have no logits
    if marks:
        laws = torch.nn.functional.pad(laws, (0, marks))
    positions = window.positions if tree is None else window.start[:, None] + tree.shape.place
    forced = state.forced(positions)
    return laws if forced is None else force_tokens(laws, forced)
