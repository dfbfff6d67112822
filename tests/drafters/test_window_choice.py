import itertools
import random

import pytest

from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.window_choice import (
    ENOUGH,
    PRIOR,
    WINDOWS,
    AcceptanceRecord,
    choose_window,
    expected_tokens,
)


def test_a_record_counts_what_was_tested():
    """N = 8, window 4. After the prefill's token: 3 drafts all accepted (1 -> 5), then 2 of which the second fails."""
    record = AcceptanceRecord()
    record.add([3, 1], 4, 8)
    assert record.tested == [2, 2, 1] and record.accepted == [2, 1, 1]
    record.add([0, 0, 0, 0, 0, 0, 0], 2, 8)  # one draft a pass, none in the last, where one token is missing
    assert record.tested == [8, 2, 1] and record.accepted == [2, 1, 1]


def test_expected_tokens_are_the_mean_over_all_outcomes():
    rates = [0.9, 0.5, 0.8, 0.3]
    for window in (1, 2, 5):
        mean = 0.0
        for outcome in itertools.product((True, False), repeat=window - 1):
            chance, tokens = 1.0, 1
            for rate, accepted in zip(rates, outcome, strict=False):
                chance *= rate if accepted else 1 - rate
            for accepted in outcome:
                if not accepted:
                    break
                tokens += 1
            mean += chance * tokens
        assert expected_tokens(window, rates) == pytest.approx(mean, abs=1e-12)


def test_rates_follow_what_was_seen_and_go_on_geometrically():
    seen, draw = [0.9, 0.8, 0.4, 0.4], random.Random(0)
    record = AcceptanceRecord()
    for _ in range(400):  # windows of five: 60 passes of an image long enough
        accepted = [next((i for i, rate in enumerate(seen) if draw.random() >= rate), 4) for _ in range(60)]
        record.add(accepted, 5, 10**6)
    rates = record.rates(63)
    assert rates[:4] == pytest.approx(seen, abs=0.02)
    assert rates[4:] == [rates[4]] * 59 and rates[4] == pytest.approx(0.4, abs=0.01)


def test_an_index_tested_seldom_takes_the_rate_of_those_before():
    record = AcceptanceRecord()
    record.tested, record.accepted = [1000, 1000, ENOUGH - 1], [500, 500, ENOUGH - 1]
    assert record.rates(4) == pytest.approx([0.5] * 4, abs=2e-3)


def test_without_pictures_the_prior_stands():
    assert AcceptanceRecord().rates(3) == pytest.approx([PRIOR] * 3)


def test_the_window_pays_for_its_time():
    rates = [0.5] * 63
    assert choose_window(dict.fromkeys(WINDOWS, 1.0), [0.99] * 63) == 64  # width for nothing
    assert choose_window({w: float(w) for w in WINDOWS}, [0.99] * 63) == 1  # a forward as dear as its tokens
    # 1, 1.875, 1.992 and 1.99997 tokens: of 4 and 8, the rates per second are 1.25 and 1.245, then 1.25 and 1.253
    assert choose_window({1: 1.0, 4: 1.5, 8: 1.6, 16: 1.61}, rates) == 4
    assert choose_window({1: 1.0, 4: 1.5, 8: 1.59, 16: 1.61}, rates) == 8
    assert choose_window({8: 1.0, 4: 1.0, 1: 1.0}, [0.0] * 7) == 1


def test_auto_is_the_only_word_a_window_may_be():
    assert JacobiDrafter("auto").window == max(WINDOWS)
    with pytest.raises(ValueError, match="window must be an integer >= 1, got 'automatic'"):
        JacobiDrafter("automatic")
