"""What a relaxation schedule must provide. One rule, one file; registering it makes it available by name everywhere."""

from __future__ import annotations

from diffusers import ConfigMixin, SchedulerMixin
from torch import Tensor, minimum, where

from csd_pipeline.decoding.window import Window


class Relaxation(SchedulerMixin, ConfigMixin):
    """Acceptance rule of the draft tokens.

    A subclass implements :meth:`accepted_mass` and says by ``exact`` when it is plain speculative decoding. Config
    options every relaxed rule has:

    * ``support_guard``: never accept a token of target probability 0 (additive rules would emit it otherwise).
    * ``relax_fresh``: also relax drafts that only just entered the window (they may be random tokens; off by default,
      on in the papers' released loops).
    """

    order = 1
    source: str = ""
    dominates_vanilla = True  # f >= min(1, p/q) at every symbol: acceptance gained equals drift spent

    @property
    def exact(self) -> bool:
        """True when the output law is the target law for every pair of laws."""
        raise NotImplementedError

    def accepted_mass(self, window: Window) -> Tensor:
        """[B, L, V] ``q f`` with ``f`` in [0, 1] the acceptance probability of every symbol under this rule."""
        raise NotImplementedError

    def relaxed_mass(self, window: Window) -> Tensor:
        """:meth:`accepted_mass` with the guards applied; a fresh draft keeps the plain mass ``min(p, q)``."""
        mass = self.accepted_mass(window)
        if self.config.support_guard:
            mass = where(window.p > 0, mass, 0.0)
        if not self.config.relax_fresh:
            mass = where(window.fresh.unsqueeze(-1), minimum(window.p, window.q), mass)
        return mass
