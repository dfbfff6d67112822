"""Judge the drafts of a window together: exact, and never fewer tokens per pass than judging them one by one."""

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from csd_pipeline.checks import require_integer
from csd_pipeline.decoding.indexing import at_slot
from csd_pipeline.decoding.sampling import residual
from csd_pipeline.decoding.verification import Decision
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class BlockVerification(Relaxation):
    """Accept the longest run of drafts that passes a joint test (block verification, arXiv 2403.10444).

    With ``w_0 = 1``, ``w_i = min(1, w_{i-1} p_i(x_i)/q_i(x_i))`` and ``S_i = sum_v [w_i p_{i+1}(v) - q_{i+1}(v)]+``,
    the run of ``i`` drafts passes with probability ``S_i / (S_i + 1 - w_i)`` (``w_i`` at the end of the block), each
    with a number of its own; ``tau`` is the longest run that passes, and the next token comes from ``[w_tau p - q]+``.
    A draft less likely than it should be can be made good by the drafts after it. The output law is the target law, but
    ``tau`` has read the drafts behind it: they are drawn anew, independently, whatever ``redraw`` of the drafter says.

    The reported acceptance of a draft is ``w_i``, the probability that the run survives up to it.

    Args:
        length: drafts judged together at most, >= 0; the blocks are then tested one after the other and only those of a
            failing block are drawn anew. 0 is the whole window, 1 is plain speculative decoding.
        support_guard: accepted for the sake of interchange; an exact rule emits no impossible token.
        relax_fresh: accepted for the sake of interchange; an exact rule may judge any draft.

    Raises:
        ValueError: ``length`` negative or not an integer.
    """

    source = "arXiv 2403.10444"
    departures = (
        "drafts are Jacobi chains, so every draft of a failing block is redrawn; blocks shorter than the window are "
        "ours; a filter's gate of 0 starts a new block."
    )
    exact = True
    dominates_vanilla = False  # of whole runs, not of every draft

    @register_to_config
    def __init__(self, length: int = 0, support_guard: bool = True, relax_fresh: bool = False):
        require_integer("length", length, 0)

    @property
    def plain(self) -> bool:
        return self.config.length == 1

    def decide(self, window: Window, alignment_filter, uniform: Tensor) -> Decision:
        starts = self._starts(window, alignment_filter)
        slot = torch.arange(starts.shape[1], device=starts.device)
        ends = torch.cat([starts[:, 1:], torch.ones_like(starts[:, :1])], 1) | (slot == window.lengths[:, None] - 1)
        run = run_ratio((window.p_draft / window.q_draft).nan_to_num_(0.0, posinf=torch.inf), starts)  # w after a slot
        before = torch.where(starts, 1.0, run.roll(1, 1))  # w before it
        excess = (before.unsqueeze(-1) * window.p - window.q).clamp_(min=0).sum(-1).roll(-1, 1)
        passes = torch.where(run < 1, excess / (excess + 1 - run), 1.0)
        passed = (uniform < torch.where(ends, run, passes)) & window.valid
        failures = (ends & ~passed).long()
        reached = failures.cumsum(1) - failures == 0  # no earlier block has failed
        accepted = torch.where(passed & reached, slot + 1, 0).amax(1)
        at = accepted.clamp(max=starts.shape[1] - 1)
        rest = residual(at_slot(before, at)[:, None] * at_slot(window.target_laws, at), at_slot(window.q, at))
        spoiled = reached & (slot >= accepted[:, None])
        return Decision(accepted, rest, run, torch.zeros_like(run), spoiled)

    def _starts(self, window: Window, alignment_filter) -> Tensor:
        """[B, L] bool: where a block starts. It may depend on the drafts before a slot only, as the laws there do."""
        slot = torch.arange(window.drafts.shape[1], device=window.drafts.device)
        starts = (slot % (self.config.length or len(slot)) == 0).expand_as(window.valid)
        if alignment_filter is None:
            return starts
        return starts | (alignment_filter.gate(window, torch.zeros_like(window.vanilla)) == 0)


def run_ratio(ratio: Tensor, starts: Tensor) -> Tensor:
    """``w_i = min(1, w_{i-1} ratio_i)`` along [B, L], with ``w = 1`` before every start; no loop over L.

    ``w_i`` is 1 or the smallest product of ratios from a slot of the block up to i.
    """
    length = ratio.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=ratio.device).triu()
    products = torch.where(later, ratio[:, None, :], 1.0).cumprod(-1).nan_to_num_(0.0, posinf=torch.inf)  # inf * 0 is 0
    block = starts.long().cumsum(1)
    same = (block[:, :, None] == block[:, None, :]) & later
    return torch.where(same, products, 1.0).amin(1).clamp_(max=1.0)
