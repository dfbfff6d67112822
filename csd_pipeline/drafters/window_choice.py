"""Which window decodes fastest, from the time of a forward and from how many tokens passes of each width committed."""

from __future__ import annotations

from dataclasses import dataclass, field

AUTO = "auto"
WINDOWS = (1, 4, 8, 16, 32, 64)  # those an automatic window is chosen from
# Before the first picture: a draft is accepted with this probability once those before it are (coupled redraws accept
# about that many on published 7B targets; independent ones fewer).
PRIOR = 0.7
ENOUGH = 16  # passes of one width that tell how many tokens such a pass commits; fewer say too little


@dataclass
class CommittedRecord:
    """What one method committed, by window.

    Attributes:
        passes: passes after the prefill, by tokens per forward.
        tokens: tokens they committed.
    """

    passes: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)

    def add(self, window: int, passes: int, tokens: int) -> None:
        """Enter one finished image, drawn with ``window`` tokens per forward."""
        self.passes[window] = self.passes.get(window, 0) + passes
        self.tokens[window] = self.tokens.get(window, 0) + tokens

    def tokens_per_pass(self, window: int) -> float:
        """Tokens that a pass of this width commits; the most it may, where it was not tried often enough.

        A wider window commits more because more drafts fit and because drafts ripen longer in it, but not more in
        proportion to its width; a narrower one not more than a wider one. Nothing is known before the first picture:
        then every draft is accepted with the probability :data:`PRIOR`.
        """
        known = {w: self.tokens[w] / passes for w, passes in self.passes.items() if passes >= ENOUGH}
        if window in known:
            return known[window]
        if not known:
            return expected_tokens(window, PRIOR)
        return min(min(window, tokens * max(1.0, window / width)) for width, tokens in known.items())


def expected_tokens(window: int, rate: float) -> float:
    """Tokens a pass commits, its own and each draft that survives, if each does with probability ``rate``."""
    return sum(rate**drafts for drafts in range(window))


def choose_window(seconds: dict[int, float], record: CommittedRecord) -> int:
    """The window of ``seconds`` (time of a forward by window) that commits most tokens per second.

    One that was not tried yet counts with the most it may commit, so that it is tried as long as it may be the best. Of
    two that are as good it is the smaller one.
    """
    return max(sorted(seconds), key=lambda window: record.tokens_per_pass(window) / seconds[window])
