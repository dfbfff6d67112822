"""Progress, events, previews and cancelling of a run, without a host."""

import pytest
import torch

from comfy_nodes.live import LiveRun


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def live_run(total, **changed):
    seen = {"progress": [], "events": []}
    arguments = {
        "check_cancelled": lambda: None,
        "show_progress": lambda *values: seen["progress"].append(values),
        "preview": lambda tokens, counts: None,
        "send": seen["events"].append,
        "clock": Clock(),
    }
    return LiveRun(total, **arguments | changed), seen


def passes(live, *counts, drift=0.0, seconds=1.0):
    for step, count in enumerate(counts):
        tensors = {"latents": None, "counts": torch.tensor(count), "drift": torch.full((len(count),), drift)}
        live(None, step, min(count), tensors)
        live.clock.now += seconds


def test_tokens_per_pass_count_only_the_images_still_drawing():
    live, seen = live_run(20)
    passes(live, [1, 1], [4, 2], [10, 3], [10, 10])
    assert [event["accepted"] for event in seen["events"]] == [[], [2.0], [3.5], [7.0]]
    assert [event["tokens"] for event in seen["events"]] == [2, 6, 13, 20]


def test_first_and_done_frame_a_run():
    live, seen = live_run(4)
    passes(live, [1], [3], [4])
    assert [(event["first"], event["done"]) for event in seen["events"]] == [
        (True, False),
        (False, False),
        (False, True),
    ]


def test_events_are_at_most_ten_a_second_and_lose_nothing():
    live, seen = live_run(101)
    passes(live, *([count] for count in range(1, 102)), seconds=0.01)
    assert len(seen["events"]) <= 12
    assert sum(sum(event["accepted"]) for event in seen["events"]) == 100
    assert len(seen["progress"]) == 101 and seen["progress"][-1][:2] == (101, 101)


def test_drift_is_per_token_so_far():
    live, seen = live_run(100)
    passes(live, [10, 30], drift=1.0)
    assert seen["events"][0]["drift"] == pytest.approx(2.0 / 40)


class Cancelled(BaseException):
    """As the host's own, which is no Exception in newer versions."""


@pytest.mark.parametrize("kind", [Cancelled, RuntimeError])
def test_cancelling_ends_within_one_pass_with_the_hosts_own_exception(embedded, kind):
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise kind("stop")

    live, _ = live_run(256, check_cancelled=check)
    settings = {"seed": 5, "preset": "exact", "output_type": "latent"}
    undisturbed = embedded("rocket at starry night", **settings).images
    with pytest.raises(kind) as caught:
        embedded(
            "rocket at starry night",
            **settings,
            callback_on_step_end=live,
            callback_on_step_end_tensor_inputs=list(live.tensors),
        )
    assert type(caught.value) is kind and caught.value.__cause__ is None and len(calls) == 3
    assert torch.equal(embedded("rocket at starry night", **settings).images, undisturbed)


def test_watching_a_run_does_not_change_it(embedded):
    live, seen = live_run(512)
    settings = {"seed": 5, "preset": "fast", "output_type": "latent", "num_images_per_prompt": 2}
    names = list(live.tensors)
    watched = embedded("ghost", **settings, callback_on_step_end=live, callback_on_step_end_tensor_inputs=names)
    assert torch.equal(watched.images, embedded("ghost", **settings).images)
    spent = sum(trace.drift for trace in watched.traces) / 512
    assert seen["progress"][-1][0] == 512 and seen["events"][-1]["drift"] == pytest.approx(spent, abs=1e-6)
