"""One pass over the draft window of every image: the laws, the drafts, and the quantities every rule reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .indexing import at_drafts, at_slot, count_up, filled

_LOWEST_LOG = -200.0  # below the logarithm of any float32 but 0


class computed_once:
    """A property computed at its first use; functools.cached_property takes a lock, which torch.compile can't trace."""

    def __init__(self, function):
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        value = self.function(instance)
        setattr(instance, self.name, value)
        return value


@dataclass
class Window:
    """What verification sees. B images, L draft positions, V image codes; float32 laws.

    Args:
        target_laws: [B, L+1, V] ``p``; the last one is the law after the last draft.
        draft_laws: [B, L, V] ``q``, the law each draft was really drawn from.
        drafts: [B, L] int64.
        fresh: [B, L] bool, True where ``q`` is not yet a target law of that very position (just entered the window).
        lengths: [B] int64, number of real drafts of each image (<= L); the rest is padding.
        start: [B] int64, absolute position of draft 0.
        spent: [B] float32 drift each image has spent so far; zeros unless a filter asks for it.
        total: N, tokens of an image.
        full: the host knows that every draft is a real one, which then need not be asked.
    """

    target_laws: Tensor
    draft_laws: Tensor
    drafts: Tensor
    fresh: Tensor
    lengths: Tensor
    start: Tensor
    spent: Tensor | None = None
    total: int = 1
    full: bool = False
    _next_law: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def __post_init__(self):
        if self.spent is None:
            self.spent = torch.zeros_like(self.start, dtype=torch.float32)

    @computed_once
    def p(self) -> Tensor:
        """[B, L, V] target laws of the draft positions."""
        return self.target_laws[:, :-1]

    @property
    def q(self) -> Tensor:
        return self.draft_laws

    @computed_once
    def valid(self) -> Tensor:
        """[B, L] bool: slots that hold a real draft."""
        if self.full:
            return filled(True, *self.drafts.shape, self.drafts.device)
        return count_up(self.drafts.shape[1], self.drafts.device) < self.lengths[:, None]

    def real(self, slots: Tensor) -> Tensor:
        """``slots`` [B, L] bool where they hold a real draft, else False."""
        return slots if self.full else slots & self.valid

    @computed_once
    def positions(self) -> Tensor:
        """[B, L+1] int64 absolute positions."""
        return self.start[:, None] + count_up(self.drafts.shape[1] + 1, self.drafts.device)

    @computed_once
    def p_draft(self) -> Tensor:
        """[B, L] target probability of the drafts."""
        return at_drafts(self.p, self.drafts)

    @computed_once
    def q_draft(self) -> Tensor:
        """[B, L] recorded probability of the drafts (positive for every real draft)."""
        return at_drafts(self.q, self.drafts)

    @computed_once
    def plain_mass(self) -> Tensor:
        """[B, L, V] ``min(p, q)``, the mass plain speculative decoding accepts."""
        return torch.minimum(self.p, self.q)

    @computed_once
    def vanilla(self) -> Tensor:
        """[B, L] ``min(1, p / q)`` at the drafts (Leviathan et al., arXiv 2211.17192)."""
        return (self.p_draft / self.q_draft).clamp(max=1.0).nan_to_num_(0.0)

    @computed_once
    def entropy(self) -> Tensor:
        """[B, L] entropy of the target laws in nats."""
        return entropy(self.p)

    @computed_once
    def tv(self) -> Tensor:
        """[B, L] total variation distance between target and draft law."""
        return (self.p - self.plain_mass).sum(-1)

    def next_law(self, accepted: Tensor) -> Tensor:
        """[B, V] target law of the token after ``accepted`` [B] drafts; asked for again, the same tensor."""
        if self._next_law is None or self._next_law[0] is not accepted:
            self._next_law = (accepted, at_slot(self.target_laws, accepted))
        return self._next_law[1]


def entropy(law: Tensor) -> Tensor:
    """Entropy in nats along the last axis, with 0 ln 0 = 0."""
    return -(law * law.log().clamp_(min=_LOWEST_LOG)).sum(-1)
