"""One pass over the window of every image, the prefill apart: propose, forward, warp, verify, observe, commit.

:func:`window_pass` holds no Python that depends on what was drawn: shapes follow from the number of drafts and from
what the host prepared (noise, reach of attention), everything else stays on the device. So it can be traced whole by
torch.compile; run eagerly it is the specification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .sampling import Warp, force_tokens
from .state import DecodingState
from .trace import TraceRecorder
from .tree import DraftTree
from .tree_verification import verify_tree
from .verification import relaxes, verify, verify_shared_noise
from .window import Window

if TYPE_CHECKING:
    from csd_pipeline.targets.base import TargetSession

RunPass = Callable[["DecodingPass", int], Tensor]


@dataclass
class DecodingPass:
    """What a pass works on: the target's session, the state of the images, and the method.

    Args:
        images: [B] int64, rows of the active images in the recorder's maps.
        shape_is_fixed: always draft a whole window, also where the image ends earlier; then every pass has one shape.
        traced_as: what a compiled pass knows this one by.
    """

    session: TargetSession
    state: DecodingState
    drafter: object
    draft_run: object
    warp: Warp
    relaxation: object
    alignment_filter: object
    recorder: TraceRecorder
    images: Tensor
    shape_is_fixed: bool = False
    traced_as: tuple | None = None

    def __post_init__(self):
        self.relaxed = relaxes(self.relaxation, self.alignment_filter)
        self.share_noise = self.drafter.shares_noise and not self.relaxed
        self.window = min(self.drafter.window, self.state.grid.tokens)
        self.ledger = self.relaxed and self.alignment_filter is not None and self.alignment_filter.uses_ledger

    def prepare(self, number: int) -> int:
        """The host's part before pass ``number``; returns how many drafts it verifies."""
        self.state.noise.prepare(number)
        length = self.window - 1
        if not self.shape_is_fixed:
            length = min(length, self.state.grid.tokens - min(self.state.counts) - 1)
        self.session.reach(max(self.state.counts), 1 + length + self.drafter.extra_tokens)
        return length


def prefill_pass(run: DecodingPass) -> Tensor:
    """Run the prompt and draw the first token of every image; returns what :func:`window_pass` does."""
    state = run.state
    none = torch.zeros(len(state.counts), 0, device=state.tokens.device)
    empty = none.new_zeros(len(state.counts), 0, state.vocabulary)
    zeros = torch.zeros_like(state.committed)
    window = Window(empty, empty, none.long(), none.bool(), zeros, state.committed)
    return _finish(run, run.session.prefill(), window, None)


def window_pass(run: DecodingPass, length: int) -> Tensor:
    """Verify ``length`` drafts of every image in one target forward and commit what is accepted.

    Args:
        run: what to work on; changed in place.
        length: drafts per image.

    Returns:
        [B + 1] float32: committed tokens of every image, then a number that is finite if the target's laws are.
    """
    state = run.state
    lengths = state.room().clamp(max=run.window - 1)
    drafts, laws, fresh = run.draft_run.propose(state, length)
    tree = run.draft_run.branch(state, drafts, laws)
    if tree is None:
        tokens, shape = torch.cat([state.last_tokens, drafts], 1), None
    else:
        tokens, shape = tree.tokens(state.last_tokens, drafts), tree.shape
    logits = run.session.step(tokens, state.committed, None, shape)
    window = Window(laws, laws, drafts, fresh, lengths, state.committed, state.spent, state.grid.tokens)
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
    run.recorder.record(window, outcome, run.images, state.passes, run.relaxed)
    run.draft_run.observe(state, window, outcome)
    if run.ledger:
        state.charge(window, outcome)
    state.commit(window, outcome)
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
