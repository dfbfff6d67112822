"""Rules that judge several drafts together."""

from __future__ import annotations

from torch import Tensor, lerp, nn, where

from csd_pipeline.decoding.indexing import at_slot
from csd_pipeline.decoding.sampling import residual
from csd_pipeline.decoding.verification import Decision, leading
from csd_pipeline.decoding.window import Window

from .base import Relaxation


class JointRelaxation(Relaxation):
    """Cuts the window into groups of neighbouring drafts and judges each group as one.

    Whatever a group's tests are, they give every draft a probability ``S_j`` that the group is accepted up to and
    including it. Testing the drafts one by one with ``f_j = S_j / S_(j-1)`` and a uniform each accepts the same number
    of drafts with the same probabilities; so a gate moves every draft between the plain rule and this one, as in the
    rules that judge each draft by itself.

    ``f_j`` depends on later drafts of the group, so there is no law of the next token to compare with the target's.
    The drift of a draft is ``|f_j - min(1, p/q)|``, the probability that its decision differs from that of plain
    speculative decoding under the same noise. Up to the first decision that differs both decode the same image, the
    drafts kept for another pass included, so the expected sum over an image bounds the image's total variation.

    A subclass implements :meth:`group_starts` and :meth:`log_survival`.
    """

    def group_starts(self, window: Window, alone: Tensor) -> Tensor:
        """[B, L] bool, the slots where a group starts; those of ``alone`` [B, L] share their group with nobody."""
        raise NotImplementedError

    def log_survival(self, window: Window, group: Tensor) -> Tensor:
        """[B, L] ``ln S_j`` of every draft, given the number of its group [B, L]; ``f_j >= min(1, p/q)`` must hold."""
        raise NotImplementedError

    def accepted_share(self, window: Window, group: Tensor) -> Tensor:
        """[B, L] acceptance probability of every draft once its predecessors are accepted, with the guards applied."""
        survival = self.log_survival(window, group)
        first = ends(group).roll(1, -1)  # the last slot ends a group, so the first one starts one
        before = where(first, 0.0, survival.roll(1, -1))
        share = (survival - before).exp().clamp(max=1.0)
        share = share.fmax(window.vanilla)  # below it only by rounding; not a number, 0/0, where it is never reached
        if self.config.support_guard:
            share = where(window.p_draft > 0, share, 0.0)
        return where(first & ends(group), window.vanilla, share)

    def decide(self, window: Window, alignment_filter, uniform: Tensor) -> Decision:
        group = self.group_starts(window, self._alone(window)).cumsum(-1)
        acceptance = self.accepted_share(window, group)
        if alignment_filter is not None:
            gate = alignment_filter.gate(window, (acceptance - window.vanilla).abs())
            acceptance = lerp(window.vanilla, acceptance, gate)
        accepted = leading((uniform < acceptance) & window.valid)
        slot = accepted.clamp(max=window.drafts.shape[1] - 1)
        return Decision(
            accepted=accepted,
            residual=residual(at_slot(window.target_laws, slot), at_slot(window.q, slot)),
            acceptance=acceptance,
            drift=(acceptance - window.vanilla).abs(),
        )

    def _alone(self, window: Window) -> Tensor:
        """[B, L] drafts that are judged by themselves, by the plain rule: padding, and fresh ones unless relaxed."""
        return ~window.valid if self.config.relax_fresh else ~window.valid | window.fresh


def ends(group: Tensor) -> Tensor:
    """[B, L] bool, the last slot of every group."""
    return nn.functional.pad(group[:, 1:] != group[:, :-1], (0, 1), value=True)


def same_group(group: Tensor) -> Tensor:
    """[B, L, L] bool, entry (i, j): slots i and j belong to one group."""
    return group[:, :, None] == group[:, None, :]
