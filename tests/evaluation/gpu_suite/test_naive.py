from csd_pipeline.evaluation.gpu_suite.methods import methods
from csd_pipeline.evaluation.gpu_suite.naive import over_ours, time_naive


def test_the_naive_loop_makes_the_decisions_of_ours(tiny):
    figure = time_naive(tiny, methods()["csd"])
    assert figure["tokens"]["share_equal"] == 1.0 and figure["tokens"]["tokens"] == 64
    assert figure["passes"] == figure["passes_of_ours"] > 1 and figure["seconds_per_pass"] > 0
    assert figure["accepted_per_pass"] * figure["passes"] + figure["passes"] == 63


def test_ratios_are_of_seconds_per_pass():
    ours = {"eager": {"seconds_per_pass": 2.0}, "captured": {"seconds_per_pass": 0.5}, "compiled": "not measured: x"}
    assert over_ours({"seconds_per_pass": 6.0}, ours) == {"eager": 3.0, "captured": 12.0, "compiled": "not measured: x"}
    assert set(over_ours("not measured: y", ours).values()) == {"not measured: y"}
