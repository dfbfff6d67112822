"""One measured image of one arm."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Run:
    """Counts leave out the prefill and the one token it draws; seconds leave out prompt encoding and pixels.

    Args:
        arm: name of the arm.
        number: of the prompt, to find the run of plain decoding it is compared with.
        prompt: the text.
        seed: of the image.
        nfe: target forwards after the prefill, counted at the call.
        accepted: accepted drafts of every pass.
        drafted: drafts verified in every pass; empty where the loop can't be watched.
        drift_per_token: total variation spent per token.
        wall, cpu: seconds of decoding, wall clock and process time (prefill included).
        prefill_wall: of those, seconds of the prefill; None where it can't be watched, like the next two.
        forward_wall, forward_cpu: of those, seconds of the forwards after the prefill.
        tokens: [1, N] token ids.
        nats_per_token: mean of ``-ln p`` of the picture's tokens under the target.
        subject, background: whether the judge recognised them; None without a judge.
    """

    arm: str
    number: int
    prompt: str
    seed: int
    nfe: int
    accepted: list[int]
    drafted: list[int]
    drift_per_token: float
    wall: float
    cpu: float
    prefill_wall: float | None
    forward_wall: float | None
    forward_cpu: float | None
    tokens: Tensor = field(repr=False)
    nats_per_token: float = 0.0
    subject: bool | None = None
    background: bool | None = None

    @property
    def tokens_per_step(self) -> float:
        return (self.tokens.shape[1] - 1) / self.nfe

    @property
    def accepted_per_step(self) -> float:
        return sum(self.accepted) / self.nfe

    @property
    def overhead(self) -> float:
        """Wall seconds of the loop outside all forwards over those inside the forwards after the prefill."""
        return (self.wall - self.prefill_wall - self.forward_wall) / self.forward_wall

    def to_dict(self) -> dict:
        """For JSON; the tokens stay out."""
        kept = {name: value for name, value in vars(self).items() if name != "tokens"}
        return kept | {"tokens_per_step": self.tokens_per_step}
