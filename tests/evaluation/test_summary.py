import pytest
from bench_runs import ARMS, PARTS, hand_runs, run_of

from csd_pipeline.evaluation.arms import Arm, plain_arms
from csd_pipeline.evaluation.summary import Spread, acceptance_counts, naive_twins, summarise


@pytest.fixture
def rows():
    return {row.arm: row for row in summarise(hand_runs(), ARMS, {"fast W=4": 12_000_000})}


def test_a_spread_holds_median_percentiles_and_mean():
    assert Spread.of([float(value) for value in range(11)]) == Spread(5.0, 1.0, 9.0, 5.0)
    assert Spread.of([0.0, 1.0, 5.0]).mean == 2.0 and Spread.of([0.0, 1.0, 5.0]).median == 1.0


def test_counts_are_those_of_the_runs(rows):
    fast = rows["fast W=4"]
    assert fast.nfe.mean == 3 and fast.fewer_forwards == 16 / 6
    assert fast.tokens_per_step.mean == (8 / 2 + 8 / 4) / 2 and rows["ar"].tokens_per_step.mean == 1
    assert fast.accepted_per_step.mean == (6 / 2 + 4 / 4) / 2
    assert fast.histogram == [2, 1, 0, 3]


def test_ratios_compare_with_plain_decoding_of_the_same_prompt(rows):
    fast = rows["fast W=4"]
    assert rows["ar"].over_plain == Spread(1.0, 1.0, 1.0, 1.0)
    assert fast.over_plain.mean == pytest.approx((9 / 4 + 17 / 9) / 2) and fast.cpu_over_plain == fast.over_plain
    assert fast.step_ratio.mean == pytest.approx((1.5 / 1 + 2 / 2) / 2)
    assert fast.overhead.mean == pytest.approx((0.5 / 3 + 0.5 / 8) / 2)  # the prefill is no overhead
    assert fast.over_transformers.mean == pytest.approx((12 / 4 + 18 / 9) / 2)


def test_efficiency_is_the_wall_clock_over_what_the_forwards_allow(rows):
    fast, naive = rows["fast W=4"], rows["naive W=4"]
    assert fast.efficiency.mean == pytest.approx(((9 / 4) / (4 / 1.5) + (17 / 9) / (2 / 1)) / 2)
    assert fast.efficient and not naive.efficient
    assert naive.efficiency.mean == pytest.approx(((9 / 7) / (4 / 1.5) + (17 / 12) / (2 / 1)) / 2)


def test_acceptance_by_index_counts_only_drafts_that_were_reached():
    runs = [run_of("x", 0, [3, 1, 0, 2], 1.0, 0.0, drafted=[3, 3, 3, 2]), run_of("x", 1, [0], 1.0, 0.0, drafted=[0])]
    tested, accepted = acceptance_counts(runs)
    assert tested == [4, 3, 1]  # draft 3 of the last window does not exist, draft 2 of the third was never reached
    assert accepted == [3, 2, 1]


def test_drafts_are_tested_until_the_first_rejection(rows):
    fast = rows["fast W=4"]
    assert (fast.tested_by_index, fast.accepted_by_index) == ([4, 4, 3], [4, 3, 3])
    assert fast.acceptance_by_index == [1, 0.75, 1] and rows["ar"].acceptance_by_index == []


def test_the_naive_loop_is_compared_with_its_twin_only(rows):
    fast, naive = rows["fast W=4"], rows["naive W=4"]
    assert fast.over_naive.mean == pytest.approx((7 / 4 + 12 / 9) / 2) and fast.same_as_naive == 1
    assert naive.over_naive is None and rows["ar"].over_naive is None
    other = Arm("other W=4", ARMS[2].parts | {"drafter": type(ARMS[2].parts["drafter"])(5, "fresh", "uniform")})
    assert naive_twins([*ARMS, other]) == {"fast W=4": "naive W=4"}


def test_every_speed_has_its_drift_and_quality_beside_it(rows):
    fast = rows["fast W=4"]
    assert fast.drift_per_token.mean == pytest.approx(0.2) and fast.nats_per_token.median == 3
    assert (fast.subject, fast.background, fast.same_as_plain) == (0.5, 1, 1)
    assert rows["ar (other seeds)"].same_as_plain == 0
    assert fast.peak_memory == 12_000_000 and rows["ar"].peak_memory is None


def test_what_can_not_be_watched_is_none_and_not_a_number(rows):
    row = rows["transformers"].to_dict()
    assert row["step_ratio"] is row["efficiency"] is row["overhead"] is row["efficient"] is None
    assert row["over_plain"]["mean"] == pytest.approx((9 / 12 + 17 / 18) / 2)


def test_a_compiled_arm_is_as_efficient_as_its_forwards_allow_against_compiled_plain_decoding():
    """Plain decoding compiled takes 4 s of forwards instead of 8; wall clock still compares with uncompiled `ar`."""
    arms = [*plain_arms(compiled=True), Arm("fast", PARTS, "compiled")]
    runs = [run_of("ar", 0, [0] * 8, 8.0, 0.5), run_of("ar compiled", 0, [0] * 8, 4.0, 0.5)]
    runs += [run_of("fast", 0, [3, 3], 2.0, 0.0)]
    rows = {row.arm: row for row in summarise(runs, arms)}
    assert rows["fast"].over_plain.median == pytest.approx(9 / 2.5)
    assert rows["fast"].step_ratio.median == pytest.approx(2.0)  # 1 s over 0.5 s
    assert (
        rows["fast"].efficiency.median == pytest.approx(5 / 2.5 / (4 / 2))
        and rows["ar compiled"].step_ratio.median == 1
    )
