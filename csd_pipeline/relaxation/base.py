"""What a relaxation schedule must provide. One rule, one file; registering it makes it available by name everywhere."""

from __future__ import annotations

from diffusers import ConfigMixin, SchedulerMixin
from torch import Tensor

from csd_pipeline.decoding.indexing import filled
from csd_pipeline.decoding.verification import Decision, decide_each, overshoot
from csd_pipeline.decoding.window import Window


class Relaxation(SchedulerMixin, ConfigMixin):
    """Acceptance rule of the draft tokens.

    A subclass implements :meth:`accepted_mass`, or :meth:`decide` where drafts are judged together, and says by
    ``exact`` and ``plain`` what its law is. Config options every relaxed rule has:

    * ``support_guard``: never accept a token of target probability 0 (additive rules would emit it otherwise).
    * ``relax_fresh``: also relax drafts that only just entered the window (they may be random tokens; off by default,
      on in the papers' released loops).

    Attributes:
        source: paper or code the rule comes from.
        departures: in what it departs from them, one sentence.
        strength: the knob along which acceptance never falls, or "" if there is none.
        dominates_vanilla: ``f >= min(1, p/q)`` at every draft, so that acceptance gained equals drift spent.
    """

    order = 1
    source: str = ""
    departures: str = ""
    strength: str = ""
    dominates_vanilla: bool = True

    @property
    def exact(self) -> bool:
        """True when the output law is the target law for every pair of laws."""
        raise NotImplementedError

    @property
    def plain(self) -> bool:
        """True when every decision is that of plain speculative decoding, so that the rule need not be asked."""
        return self.exact

    def prepare(self, adapter) -> None:
        """Called once before the first pass with the target adapter, by rules that need its codebook or grid.

        Raises:
            ValueError: the rule can not serve this target.
        """

    def accepted_mass(self, window: Window) -> Tensor:
        """[B, L, V] ``q f`` with ``f`` in [0, 1] the acceptance probability of every symbol under this rule."""
        raise NotImplementedError

    def relaxed_mass(self, window: Window) -> Tensor:
        """:meth:`accepted_mass`, nothing of it on impossible tokens where ``support_guard`` is on."""
        mass = self.accepted_mass(window)
        return mass * (window.p > 0) if self.config.support_guard else mass

    def decide(self, window: Window, alignment_filter, uniform: Tensor) -> Decision:
        """Accept or reject the drafts of one pass: ``f = f_van + gate (f_rule - f_van)``, each draft by itself.

        What exceeds the target law shrinks in proportion to the gate, and so does the drift. The gate of a fresh draft
        is 0 unless ``relax_fresh`` is on.

        Args:
            window: laws and drafts, at least one draft.
            alignment_filter: gate of the rule, or None (gate 1 everywhere). Gate 0 must give the decisions of plain
                speculative decoding bit for bit.
            uniform: [B, L] in [0, 1), one number per draft.
        """
        mass, gate = self.relaxed_mass(window), None
        drift = overshoot(mass, window.p)
        if not self.config.relax_fresh:
            drift = drift.masked_fill(window.fresh, 0.0)
        if alignment_filter is not None:
            gate = alignment_filter.gate(window, drift).expand_as(drift)
            drift = drift * gate
        if not self.config.relax_fresh:
            gate = filled(1.0, *drift.shape, drift.device) if gate is None else gate
            gate = gate.masked_fill(window.fresh, 0.0)
        return decide_each(window, uniform, mass, drift, gate)
