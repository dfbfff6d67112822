"""Accept a prefix of the drafts, draw one more token. The only place where tokens are decided."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .noise import IndexedNoise, Purpose
from .sampling import draw_by_inverse_cdf, draw_by_race, residual
from .window import Window


@dataclass
class Verification:
    """Outcome of one pass.

    Args:
        accepted: [B] int64 ``tau``, number of accepted drafts; each image commits ``tau + 1`` tokens.
        next_token: [B] int64, the residual or bonus token after the accepted drafts.
        kept: [B, L] bool, the plain accept decision at every slot (used by coupled redraws beyond the first rejection).
        acceptance: [B, L] acceptance probability used at each draft.
        drift: [B, L] total variation spent at each slot if it is reached; 0 where decoding is exact.
        choice: [B, L+1] tokens plain decoding would draw in these contexts, or None if noise is not shared.
    """

    accepted: Tensor
    next_token: Tensor
    kept: Tensor
    acceptance: Tensor
    drift: Tensor
    choice: Tensor | None = None


def verify_shared_noise(window: Window, noise: IndexedNoise) -> Verification:
    """Exact verification by comparing each draft with the token plain decoding would draw there from the same noise.

    The result is token for token the picture of plain decoding (Gumbel-coupled Jacobi decoding, cf. arXiv 2510.24211).
    """
    choice = draw_by_race(window.target_laws, noise.gumbel(window.positions, window.target_laws.shape[-1]))
    if choice.shape[1] == 1:  # nothing to verify: one token of plain decoding
        none = window.draft_laws[..., 0]
        return Verification(window.lengths, choice[:, 0], window.fresh, none, none, choice)
    kept = (choice[:, :-1] == window.drafts) & window.valid
    accepted = _leading(kept)
    return Verification(
        accepted=accepted,
        next_token=_at(choice, accepted),
        kept=kept,
        acceptance=kept.float(),
        drift=torch.zeros_like(window.p_draft),
        choice=choice,
    )


def verify(window: Window, relaxation, alignment_filter, noise: IndexedNoise, draw: Tensor | int) -> Verification:
    """Modified rejection sampling with a relaxed acceptance probability (Leviathan et al., arXiv 2211.17192).

    ``f = f_van + gate (f_rule - f_van)``. First rejection: one token from the optimal residual ``[p - q f]+``, which
    minimises the distance to the target law; no rejection: one bonus token from the target law.

    Args:
        window: laws and drafts of this pass.
        relaxation: the acceptance rule.
        alignment_filter: gate of the rule, or None (gate 1 everywhere).
        noise: indexed noise of the images.
        draw: number of the pass, one for all images or [B] int64.
    """
    if window.drafts.shape[1] == 0:
        return verify_shared_noise(window, noise)  # nothing to verify: one token of plain decoding
    mass, drift = _accepted_mass(window, relaxation, alignment_filter)
    acceptance = window.vanilla
    if mass is not None:
        at_drafts = mass.gather(-1, window.drafts.unsqueeze(-1)).squeeze(-1)
        acceptance = (at_drafts / window.q_draft).clamp(max=1.0).nan_to_num_(0.0)
    uniform = noise.uniform(window.positions, Purpose.VERIFY, draw)[:, :-1]
    accepted = _leading((uniform < acceptance) & window.valid)
    position, law = _at(window.positions, accepted), _at(window.target_laws, accepted)
    bonus = draw_by_race(law, noise.gumbel(position[:, None], law.shape[-1])[:, 0])
    repair_uniform = _at(noise.uniform(window.positions, Purpose.RESIDUAL, draw), accepted)
    repaired = draw_by_inverse_cdf(_residual_weights(window, accepted, mass), repair_uniform)
    return Verification(
        accepted=accepted,
        next_token=torch.where(accepted == window.lengths, bonus, repaired),
        kept=(uniform < window.vanilla) & window.valid,
        acceptance=acceptance,
        drift=drift,
    )


def _accepted_mass(window: Window, relaxation, alignment_filter) -> tuple[Tensor | None, Tensor]:
    """``q f`` [B, L, V] (None where it is plainly ``min(p, q)``) and the drift ``sum [q f - p]+`` [B, L]."""
    if not relaxes(relaxation, alignment_filter):
        return None, torch.zeros_like(window.vanilla)
    vanilla = torch.minimum(window.p, window.q)
    mass = relaxation.relaxed_mass(window)
    if alignment_filter is not None:
        gate = alignment_filter.gate(window, _overshoot(mass, window.p))
        mass = torch.lerp(vanilla, mass, gate.unsqueeze(-1))
    return mass, _overshoot(mass, window.p)


def _overshoot(mass: Tensor, p: Tensor) -> Tensor:
    return (mass - p).clamp_(min=0).sum(-1)


def relaxes(relaxation, alignment_filter) -> bool:
    """False when the pair is exact by construction (strength 0, or a filter that never opens)."""
    return not relaxation.exact and not (alignment_filter is not None and alignment_filter.always_closed)


def _residual_weights(window: Window, accepted: Tensor, mass: Tensor | None) -> Tensor:
    """[B, V] unnormalised residual law at the first rejected slot of each image."""
    slot = accepted.clamp(max=window.drafts.shape[1] - 1)
    return residual(_at(window.p, slot), _at(window.q if mass is None else mass, slot))


def _leading(ok: Tensor) -> Tensor:
    """[B] number of leading True of [B, L]."""
    return ok.to(torch.int64).cumprod(-1).sum(-1)


def _at(values: Tensor, slot: Tensor) -> Tensor:
    """``values[b, slot[b]]`` for [B, L] or [B, L, V] values."""
    index = slot.view(-1, 1, *(1,) * (values.dim() - 2)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index).squeeze(1)
