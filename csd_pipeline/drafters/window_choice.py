"""Which window decodes fastest, from the time of a forward and from how far drafts were accepted."""

from __future__ import annotations

AUTO = "auto"
WINDOWS = (1, 4, 8, 16, 32, 64)  # those an automatic window is chosen from
# Before the first picture: a draft is accepted with this probability once those before it are (coupled redraws accept
# about that many on published 7B targets; independent ones fewer). It counts as so many observations at every index.
PRIOR, PRIOR_WEIGHT = 0.7, 4
ENOUGH = 16  # an index tested less often says too little by itself


class AcceptanceRecord:
    """How often the draft of each index was tested (those before it were accepted), and how often it was accepted."""

    def __init__(self):
        self.tested: list[int] = []
        self.accepted: list[int] = []

    def add(self, accepted: list[int], window: int, total: int) -> None:
        """Enter one finished image.

        Args:
            accepted: accepted drafts of every pass after the prefill.
            window: tokens per forward it was drawn with.
            total: N, tokens of the image.
        """
        committed = 1  # by the prefill
        for count in accepted:
            drafts = min(window - 1, total - committed - 1)
            missing = max(0, drafts - len(self.tested))
            self.tested += [0] * missing
            self.accepted += [0] * missing
            for index in range(min(count + 1, drafts)):
                self.tested[index] += 1
                self.accepted[index] += index < count
            committed += count + 1

    def rates(self, count: int) -> list[float]:
        """Probability with which each of the first ``count`` drafts is accepted once those before it are.

        Beyond the indices that were tested often, drafts are taken to survive geometrically, at the rate of the second
        half of those.
        """
        known = next((i for i, tested in enumerate(self.tested) if tested < ENOUGH), len(self.tested))
        rates = [
            _smoothed(accepted, tested)
            for accepted, tested in zip(self.accepted[:known], self.tested[:known], strict=True)
        ]
        tail = _smoothed(sum(self.accepted[known // 2 : known]), sum(self.tested[known // 2 : known]))
        return (rates + [tail] * count)[:count]


def _smoothed(accepted: int, tested: int) -> float:
    return (accepted + PRIOR * PRIOR_WEIGHT) / (tested + PRIOR_WEIGHT)


def expected_tokens(window: int, rates: list[float]) -> float:
    """Tokens a pass commits: its own one, and each draft that survives.

    Args:
        window: tokens per forward.
        rates: at least ``window - 1`` acceptance probabilities, each given that the drafts before it were accepted.
    """
    tokens = survival = 1.0
    for rate in rates[: window - 1]:
        survival *= rate
        tokens += survival
    return tokens


def choose_window(seconds: dict[int, float], rates: list[float]) -> int:
    """The window of ``seconds`` that commits most tokens per second; the smaller one of two that are as good.

    Args:
        seconds: time of a forward by window.
        rates: acceptance probabilities, at least one less than the largest window.
    """
    return max(sorted(seconds), key=lambda window: expected_tokens(window, rates) / seconds[window])
