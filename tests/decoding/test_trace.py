import json

import pytest
import torch

from csd_pipeline.decoding.trace import Trace, TraceRecorder
from csd_pipeline.targets import Grid


def test_accepted_lengths_and_tokens_per_step_are_told_apart():
    """Three passes accept 2, 0 and 3 drafts, each adds one token of the target; the prefill's token is no step's."""
    recorder = TraceRecorder([7], tokens=9, device="cpu", maps=False)
    for before, after in ((0, 1), (1, 4), (4, 5), (5, 9)):
        recorder.advance(0, before, after)
    trace = recorder.finish(Grid(3, 3))[0]
    assert trace.accepted == [2, 0, 3] and trace.nfe == 3 and trace.tokens == 9
    assert trace.accepted_per_step == pytest.approx(5 / 3) and trace.tokens_per_step == pytest.approx(8 / 3)
    assert trace.accepted_histogram == [1, 0, 1, 1]


def test_plain_decoding_makes_one_token_per_step():
    recorder = TraceRecorder([0], tokens=4, device="cpu", maps=False)
    for before in range(4):
        recorder.advance(0, before, before + 1)
    trace = recorder.finish(Grid(2, 2))[0]
    assert trace.tokens_per_step == 1 and trace.accepted_per_step == 0 and trace.accepted_histogram == [3]


def test_an_image_without_steps_divides_by_nothing():
    trace = Trace(seed=0, tokens=1)
    assert trace.tokens_per_step == 0 and trace.accepted_per_step == 0 and trace.accepted_histogram == [0]
    assert Trace(seed=0).drift_per_token == 0


def test_drift_per_token():
    assert Trace(seed=0, tokens=8, drift=0.4).drift_per_token == pytest.approx(0.05)


def test_the_report_is_json_without_maps():
    trace = Trace(seed=2**64 - 1, tokens=9, nfe=3, accepted=[2, 0, 3], drift=0.25, maps={"drift": torch.zeros(3, 3)})
    report = json.loads(json.dumps(trace.to_dict()))
    assert report["seed"] == 2**64 - 1 and report["accepted_histogram"] == [1, 0, 1, 1] and "maps" not in report
    assert report["tokens_per_step"] == 2.6667 and report["accepted_per_step"] == 1.6667 and report["nfe"] == 3
