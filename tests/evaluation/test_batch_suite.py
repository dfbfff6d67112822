"""Images per second by batch size: the arms, and the meaning of the ratios."""

from tiny_janus import PROMPT, tiny_pipeline

from csd_pipeline.evaluation import batch_suite
from csd_pipeline.evaluation.batch_suite import BatchArm, arms_of, markdown, measure


def test_every_arm_has_those_its_ratios_refer_to():
    arms = arms_of((8, 4), (16, 16))
    assert len(arms) == len(set(arms)) and BatchArm(1, 1) in arms
    for arm in arms:
        assert BatchArm(arm.window, 1) in arms and BatchArm(1, arm.batch) in arms
    assert {arm for arm in arms if arm.refill} == {BatchArm(16, 8, True), BatchArm(16, 4, True)}


def test_ratios_are_those_of_the_seconds(monkeypatch):
    seconds = {(1, 1, False): 8.0, (1, 2, False): 4.0, (3, 1, False): 2.0, (3, 2, False): 1.0, (3, 2, True): 0.5}
    monkeypatch.setattr(batch_suite, "_draw", lambda _, arm, *__: (seconds[arm.window, arm.batch, arm.refill], 7))
    rounds = []
    rows = measure(tiny_pipeline(), arms_of((2,), (3,)), ["a"] * 6, 0, 2, {}, rounds.append)
    figures = {row.arm: (row.images_per_second, row.over_single, row.over_plain, row.forwards) for row in rows}
    assert figures[BatchArm(3, 2)] == (6.0, 2.0, 4.0, 7) and figures[BatchArm(3, 2, True)] == (12.0, 4.0, 8.0, 7)
    assert figures[BatchArm(1, 1)] == (0.75, 1.0, 1.0, 7) and rounds == [0, 1, 2]
    assert "| exact-gumbel W=3 | 2, refilled | 12.00 | 4.00x | 8.00x | 7 |" in markdown(rows)


def test_forwards_are_counted_and_the_parts_put_back():
    pipe = tiny_pipeline()
    own = pipe.drafter, pipe.relaxation, pipe.alignment_filter
    rows = measure(pipe, arms_of((2,), (4,)), [PROMPT] * 4, 5, 1, {}, lambda done: None)
    forwards = {row.arm: row.forwards for row in rows}
    assert forwards[BatchArm(1, 1)] == 4 * 16 and forwards[BatchArm(1, 2)] == 2 * 16
    assert forwards[BatchArm(4, 1)] < 4 * 16 and forwards[BatchArm(4, 2, True)] <= 2 + forwards[BatchArm(4, 2)]
    assert (pipe.drafter, pipe.relaxation, pipe.alignment_filter) == own
    assert all(row.images_per_second > 0 for row in rows)
