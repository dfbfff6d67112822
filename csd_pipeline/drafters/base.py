"""What a drafter must provide: drafts with the law each was really drawn from."""

from __future__ import annotations

from abc import ABC, abstractmethod

from diffusers import ConfigMixin, SchedulerMixin
from torch import Tensor

from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.tree import DraftTree
from csd_pipeline.decoding.verification import Verification
from csd_pipeline.decoding.window import Window


class DraftRun(ABC):
    """The memory of a drafter during one decoding run; changed in place, as a captured pass finds it where it was."""

    @abstractmethod
    def propose(self, state: DecodingState, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Drafts for the positions after the committed ones.

        Returns:
            drafts [B, L] int64, draft laws [B, L, V] float32, fresh [B, L] bool.
        """

    def branch(self, state: DecodingState, drafts: Tensor, laws: Tensor) -> DraftTree | None:
        """Further candidates for the first positions of the drafts [B, L] just proposed with their laws [B, L, V]."""
        return None

    @abstractmethod
    def observe(self, state: DecodingState, window: Window, outcome: Verification) -> None:
        """Learn from a verified window, before the state commits it."""

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Drop every image but ``rows`` (int64 indices)."""

    @abstractmethod
    def admit(self, slots: Tensor, newcomers: DraftRun) -> None:
        """Put the images of another run of the same drafter in the place of those in ``slots`` (int64)."""


class Drafter(SchedulerMixin, ConfigMixin):
    """Options of a drafting method; :meth:`begin` starts a run.

    Attributes:
        shares_noise: drafts are drawn with the very noise plain decoding would use, so that an exact run can compare
            tokens instead of laws and returns the same picture as plain decoding.
        extra_tokens: tokens per target forward besides the window: the other candidates of a tree.
        exact: the law recorded for a draft is the one it was really drawn from, so that an exact rule keeps the target
            law.
    """

    config_name = "drafter_config.json"
    order = 1
    source: str = ""
    shares_noise = False
    extra_tokens = 0
    exact = True

    @property
    def window(self) -> int:
        """Tokens per target forward: one committed token and ``window - 1`` drafts."""
        return self.config.window

    def begin(self, state: DecodingState) -> DraftRun:
        raise NotImplementedError
