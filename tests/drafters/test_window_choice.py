import pytest

from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.window_choice import (
    ENOUGH,
    PRIOR,
    WINDOWS,
    CommittedRecord,
    choose_window,
    expected_tokens,
)


def record_of(**tokens: float) -> CommittedRecord:
    """Tokens per pass by window, each seen often enough: ``w8=3.0``."""
    record = CommittedRecord()
    for name, value in tokens.items():
        record.add(int(name[1:]), 1000, round(1000 * value))
    return record


def test_a_record_adds_up_images_of_one_width():
    record = CommittedRecord()
    record.add(8, 30, 100)
    record.add(8, 20, 100)
    record.add(4, 100, 200)
    assert record.tokens_per_pass(8) == 4.0 and record.tokens_per_pass(4) == 2.0


def test_expected_tokens_are_those_that_survive():
    """One draft of probability r: 1 + r. Two: 1 + r (1 - r) + 2 r^2 = 1 + r + r^2."""
    assert expected_tokens(1, 0.3) == 1.0
    assert expected_tokens(2, 0.3) == pytest.approx(1.3)
    assert expected_tokens(3, 0.3) == pytest.approx(1 + 0.3 * 0.7 + 2 * 0.09)
    assert expected_tokens(5, 1.0) == 5.0 and expected_tokens(5, 0.0) == 1.0


def test_without_pictures_the_prior_stands():
    assert [CommittedRecord().tokens_per_pass(w) for w in WINDOWS] == [expected_tokens(w, PRIOR) for w in WINDOWS]
    few = CommittedRecord()
    few.add(8, ENOUGH - 1, 8 * (ENOUGH - 1))
    assert few.tokens_per_pass(8) == expected_tokens(8, PRIOR)


def test_a_width_that_was_not_tried_commits_at_most_in_proportion():
    record = record_of(w8=3.0, w32=6.0)
    assert record.tokens_per_pass(64) == 12.0  # twice what 32 commit, which is less than eight times what 8 do
    assert record.tokens_per_pass(16) == 6.0  # twice what 8 commit, and no more than 32 do
    assert record.tokens_per_pass(4) == 3.0  # no more than 8 do
    assert record.tokens_per_pass(1) == 1.0  # no more than it is wide


def test_the_window_pays_for_its_time():
    same = dict.fromkeys(WINDOWS, 1.0)
    assert choose_window(same, record_of(w64=60.0, w32=31.0, w16=16.0, w8=8.0, w4=4.0)) == 64  # width for nothing
    assert choose_window({w: float(w) for w in WINDOWS}, record_of(w64=60.0)) == 1  # a forward as dear as its tokens
    rising = {1: 1.0, 4: 1.5, 8: 1.6}
    assert choose_window(rising, record_of(w1=1.0, w4=1.875, w8=1.99)) == 4  # 1.25 against 1.244 tokens per second
    assert choose_window(rising, record_of(w1=1.0, w4=1.875, w8=2.01)) == 8
    assert choose_window({8: 1.0, 4: 1.0, 1: 1.0}, record_of(w1=1.0, w4=1.0, w8=1.0)) == 1  # the smallest of equals


@pytest.mark.parametrize("ripening", [1.0, 0.75, 0.5, 0.1])
@pytest.mark.parametrize("growth", [0.1, 0.3, 0.7, 1.0])
def test_the_fastest_window_is_found_in_as_many_calls_as_there_are(growth, ripening):
    """Time grows as ``width ** growth``, tokens as ``width ** ripening``, both in steps that no prior can know."""
    seconds = {w: w**growth for w in WINDOWS}
    tokens = {w: w**ripening for w in WINDOWS}
    record, chosen = CommittedRecord(), []
    for _ in range(len(WINDOWS) + 1):
        chosen.append(choose_window(seconds, record))
        record.add(chosen[-1], 10**6, round(10**6 * tokens[chosen[-1]]))
    assert tokens[chosen[-1]] / seconds[chosen[-1]] >= max(tokens[w] / seconds[w] for w in WINDOWS) * (1 - 1e-5)


def test_auto_is_the_only_word_a_window_may_be():
    assert JacobiDrafter("auto").window == max(WINDOWS)
    with pytest.raises(ValueError, match="window must be an integer >= 1, got 'automatic'"):
        JacobiDrafter("automatic")
