"""Accept a prefix of the drafts, draw one more token.

A relaxation decides about the drafts (by default each by itself, :func:`decide_each`); the tokens are drawn here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .indexing import at_drafts, at_slot, count_up, filled
from .noise import IndexedNoise, Purpose
from .sampling import draw_by_inverse_cdf, draw_by_race, residual
from .window import Window


@dataclass
class Decision:
    """What a rule makes of the drafts of one pass.

    Args:
        accepted: [B] int64 ``tau``, number of accepted drafts.
        residual: [B, V] unnormalised law of the token drawn where draft ``tau`` was rejected.
        acceptance: [B, L] acceptance probability used at each draft.
        drift: [B, L] total variation spent at each slot if it is reached.
        spoiled: [B, L] bool, slots whose drafts had a say in ``tau`` without being committed: their recorded laws do
            not hold any longer, so they must be drawn anew. None for a rule that never looks beyond a rejection.
    """

    accepted: Tensor
    residual: Tensor
    acceptance: Tensor
    drift: Tensor
    spoiled: Tensor | None = None


@dataclass
class Verification:
    """Outcome of one pass.

    Args:
        accepted: [B] int64 ``tau``, number of accepted drafts; each image commits ``tau + 1`` tokens.
        next_token: [B] int64, the residual or bonus token after the accepted drafts.
        acceptance: [B, L] acceptance probability used at each draft; bool where it can only be 0 or 1.
        drift: [B, L] total variation spent at each slot if it is reached; 0 where decoding is exact.
        choice: [B, L+1] tokens plain decoding would draw in these contexts, or None if noise is not shared.
        spoiled: [B, L] bool, drafts that can not be kept for another pass (see :class:`Decision`), or None.
    """

    accepted: Tensor
    next_token: Tensor
    acceptance: Tensor
    drift: Tensor
    choice: Tensor | None = None
    spoiled: Tensor | None = None


def verify_shared_noise(window: Window, noise: IndexedNoise) -> Verification:
    """Exact verification by comparing each draft with the token plain decoding would draw there from the same noise.

    The result is token for token the picture of plain decoding (Gumbel-coupled Jacobi decoding, cf. arXiv 2510.24211).
    """
    choice = draw_by_race(window.target_laws, noise.gumbel(window.positions, window.target_laws.shape[-1]))
    if choice.shape[1] == 1:  # nothing to verify: one token of plain decoding
        none = window.draft_laws[..., 0]
        return Verification(window.lengths, choice[:, 0], none, none, choice)
    kept = window.real(choice[:, :-1] == window.drafts)
    accepted = leading(kept)
    return Verification(
        accepted=accepted,
        next_token=at_slot(choice, accepted),
        acceptance=kept,
        drift=filled(0.0, *kept.shape, kept.device),
        choice=choice,
    )


def verify(window: Window, relaxation, alignment_filter, noise: IndexedNoise, draw: Tensor | int) -> Verification:
    """Let the rule decide about the drafts, then draw one token per image.

    First rejection: one token from the residual the rule gives; no rejection: one bonus token from the target law.

    Args:
        window: laws and drafts of this pass.
        relaxation: the acceptance rule.
        alignment_filter: gate of the rule, or None (gate 1 everywhere).
        noise: indexed noise of the images.
        draw: number of the pass, one for all images or [B] int64.
    """
    if window.drafts.shape[1] == 0:
        return verify_shared_noise(window, noise)  # nothing to verify: one token of plain decoding
    uniform = noise.uniform(window.positions, Purpose.VERIFY, draw)[:, :-1]
    if relaxes(relaxation, alignment_filter):
        decision = relaxation.decide(window, alignment_filter, uniform)
    else:
        decision = decide_each(window, uniform)
    accepted = decision.accepted
    position, law = at_slot(window.positions, accepted), window.next_law(accepted)
    bonus = draw_by_race(law, noise.gumbel(position[:, None], law.shape[-1])[:, 0])
    repair_uniform = at_slot(noise.uniform(window.positions, Purpose.RESIDUAL, draw), accepted)
    repaired = draw_by_inverse_cdf(decision.residual, repair_uniform)
    return Verification(
        accepted=accepted,
        next_token=torch.where(accepted == window.lengths, bonus, repaired),
        acceptance=decision.acceptance,
        drift=decision.drift,
        spoiled=decision.spoiled,
    )


def decide_each(
    window: Window,
    uniform: Tensor,
    mass: Tensor | None = None,
    drift: Tensor | None = None,
    gate: Tensor | None = None,
) -> Decision:
    """Modified rejection sampling, each draft by itself (Leviathan et al., arXiv 2211.17192, algorithm 1).

    First rejection: the optimal residual ``[p - q f]+``, which minimises the distance to the target law whatever ``f``.

    Args:
        window: laws and drafts of this pass.
        uniform: [B, L] in [0, 1); a draft is accepted where it is below ``f``.
        mass: [B, L, V] ``q f`` of a rule, or None for plain speculative decoding (``min(p, q)``).
        drift: [B, L] total variation the gated mass spends at each slot (:func:`overshoot`); given with ``mass``.
        gate: [B, L] in [0, 1], from the plain mass (0) to that of the rule (1, which None is everywhere). Mixed where
            the mass is read, at the drafts and in the slot of the rejection.
    """
    if mass is None:
        acceptance, mass, drift = window.vanilla, window.q, filled(0.0, *uniform.shape, uniform.device)
    else:
        at_draft = at_drafts(mass, window.drafts)
        if gate is not None:
            at_draft = torch.lerp(torch.minimum(window.p_draft, window.q_draft), at_draft, gate)
        acceptance = (at_draft / window.q_draft).clamp(max=1.0).nan_to_num_(0.0)
    accepted = leading(window.real(uniform < acceptance))
    slot = accepted.clamp(max=window.drafts.shape[1] - 1)
    law, taken = window.next_law(accepted), at_slot(mass, slot)
    if gate is not None:
        taken = torch.lerp(torch.minimum(law, at_slot(window.q, slot)), taken, at_slot(gate, slot)[:, None])
    return Decision(accepted, residual(law, taken), acceptance, drift)


def overshoot(mass: Tensor, p: Tensor) -> Tensor:
    """``sum [q f - p]+`` [B, L] of the accepted mass [B, L, V]: the total variation spent."""
    return (mass - p).clamp_(min=0).sum(-1)


def relaxes(relaxation, alignment_filter) -> bool:
    """False when the pair makes the very decisions of plain speculative decoding, whatever the laws."""
    return not relaxation.plain and not _always_closed(alignment_filter)


def is_exact(relaxation, alignment_filter, drafter) -> bool:
    """True when the output law is the target law by construction (strength 0, or a filter that never opens).

    A drafter that records a wrong law does no harm where tokens are compared instead of laws.
    """
    faithful = drafter.exact or (drafter.shares_noise and not relaxes(relaxation, alignment_filter))
    return faithful and (relaxation.exact or _always_closed(alignment_filter))


def _always_closed(alignment_filter) -> bool:
    return alignment_filter is not None and alignment_filter.always_closed


def leading(ok: Tensor) -> Tensor:
    """[B] number of leading True of [B, L]."""
    length = ok.shape[1]
    if length == 0:
        return ok.new_zeros(len(ok), dtype=torch.int64)
    return count_up(length, ok.device).masked_fill(ok, length).amin(1)
