"""From logits to laws (guidance, temperature, top-k, top-p, forced tokens) and from laws to tokens. All in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from csd_pipeline.checks import require_at_least, require_between, require_integer

TINY = 1e-12  # mass below this is rounding, not probability
_LEVEL_SUMS = ("cpu",)  # devices that sum one after the other: level across weights of 0, as parallel sums need not be


@dataclass
class Warp:
    """Turns logits into the law that is sampled; "exact" always means exact with respect to this law.

    Args:
        guidance_scale: classifier-free guidance ``l_u + s (l_c - l_u)``; 1 means no unconditional rows.
        temperature: > 0, or 0 for greedy decoding (a one-hot law at the most probable token).
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: keep the smallest set of most probable tokens with at least this mass; 1 keeps all, at least one stays.

    Raises:
        ValueError: a knob outside its range.
    """

    guidance_scale: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        require_at_least("guidance_scale", self.guidance_scale, 0)
        require_at_least("temperature", self.temperature, 0)
        require_integer("top_k", self.top_k, 0)
        require_between("top_p", self.top_p, 0, 1)

    @property
    def guided(self) -> bool:
        return self.guidance_scale != 1

    @property
    def settings(self) -> tuple:
        """All of it, as a key."""
        return self.guidance_scale, self.temperature, self.top_k, self.top_p

    def laws(self, logits: Tensor, images: int) -> Tensor:
        """[R, T, V] logits of any dtype, rows [all conditional, all unconditional] -> [B, T, V] float32 laws."""
        logits = logits.float()
        if logits.shape[0] > images:
            conditional, unconditional = logits[:images], logits[images:]
            logits = torch.lerp(unconditional, conditional, self.guidance_scale)
        if self.temperature == 0:
            best, token = logits.max(-1, keepdim=True)
            return (0.0 * best).expand_as(logits).scatter(-1, token, 1.0 + 0.0 * best)  # NaN stays NaN, as in softmax
        return self._truncate(logits / self.temperature).softmax(-1)

    def _truncate(self, logits: Tensor) -> Tensor:
        if 0 < self.top_k < logits.shape[-1]:
            keep = logits.topk(self.top_k, dim=-1).indices
            logits = torch.full_like(logits, -math.inf).scatter_(-1, keep, logits.gather(-1, keep))
        if self.top_p < 1:
            ordered, order = logits.sort(dim=-1, descending=True, stable=True)
            mass_before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
            mass_before[..., 0] = 0.0
            dropped = (mass_before >= self.top_p).index_fill(-1, order.new_zeros(1), False)
            logits = logits.masked_fill(torch.zeros_like(dropped).scatter_(-1, order, dropped), -math.inf)
        return logits


def force_tokens(laws: Tensor, forced: Tensor) -> Tensor:
    """Replace the law of every position whose ``forced`` [B, T] entry is >= 0 by a point mass on that token."""
    point = torch.zeros_like(laws).scatter_(-1, forced.clamp(min=0).unsqueeze(-1), 1.0)
    return torch.where((forced >= 0).unsqueeze(-1), point, laws)


def draw_by_race(laws: Tensor, gumbel: Tensor) -> Tensor:
    """``argmax(ln p + g)`` over the last axis: one sample per law, shared noise means shared samples."""
    return (laws.log() + gumbel).argmax(-1)


def draw_by_inverse_cdf(weights: Tensor, uniform: Tensor) -> Tensor:
    """One sample per row of the unnormalised ``weights`` [..., V] from ``uniform`` [...] in [0, 1).

    A token of weight 0 is never returned: where rounding would lead to one, the heaviest token takes its place.
    """
    cumulative = weights.cumsum(-1)
    threshold = uniform.unsqueeze(-1) * cumulative[..., -1:]  # below the whole sum, as a uniform is at most 1 - 2**-24
    token = _count_up_to(cumulative, threshold).clamp_(max=weights.shape[-1] - 1)
    if weights.device.type not in _LEVEL_SUMS:
        token = torch.where(weights.gather(-1, token) > 0, token, weights.argmax(-1, keepdim=True))
    return token.squeeze(-1)


def _count_up_to(cumulative: Tensor, threshold: Tensor) -> Tensor:
    """[..., 1] int64, how many of the ascending numbers [..., V] are at most the threshold [..., 1]."""
    if torch.compiler.is_compiling():  # counting fuses with what is around it, a library call does not
        return (cumulative <= threshold).sum(-1, keepdim=True)
    return torch.searchsorted(cumulative, threshold, right=True)


def residual(law: Tensor, accepted_mass: Tensor) -> Tensor:
    """Unnormalised ``[p - q f]+`` along the last axis; in proportion to ``p`` where no mass is left.

    A trace of ``p`` is always added, which needs no test for mass. But for rounding it moves the law of the next token
    by at most ``TINY`` in total variation, as a residual of mass ``m`` is drawn from with probability ``m``.
    """
    return (law - accepted_mass).clamp_(min=0).add_(law, alpha=TINY)
