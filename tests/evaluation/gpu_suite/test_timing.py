import torch

from csd_pipeline.evaluation.gpu_suite import timing


def test_the_median_of_the_repeats_alone(monkeypatch):
    """The clock moves within calls only: 100 s in each warm-up, then 1, 2, .. s."""
    now, lengths = [0.0], iter([100.0] * timing.WARM_UP + [1.0, 2.0, 3.0, 4.0, 50.0])

    def call():
        now[0] += next(lengths)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    figure = timing.time_call(call, torch.device("cpu"), repeats=5)
    assert figure["seconds"] == 3.0 and 1.0 <= figure["low"] < 2.0 and 4.0 < figure["high"] < 50.0


def test_on_a_gpu_by_events_in_milliseconds(monkeypatch):
    class Event:
        marks = 0

        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            Event.marks += 1
            self.at = Event.marks * 2.0

        def elapsed_time(self, end):
            return end.at - self.at

    waits = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    figure = timing.time_call(lambda: None, torch.device("cuda"), repeats=4)
    assert figure == {"seconds": 0.002, "low": 0.002, "high": 0.002} and len(waits) == 1
