import pytest
from gpu_stand_ins import put_in_place
from helpers_tape import Tape

from csd_pipeline.evaluation.gpu_suite import loops
from csd_pipeline.evaluation.gpu_suite.image import Image, draw, draw_naively
from csd_pipeline.evaluation.gpu_suite.loop_table import LOOPS
from csd_pipeline.evaluation.gpu_suite.methods import methods


def test_the_prompt_is_not_timed_and_every_pass_is_counted(tiny, monkeypatch):
    forwards, now = [], [0.0]
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.perf_counter", lambda: now[0])

    def second(*_):
        forwards.append(1)
        now[0] += 1.0

    hook = tiny.adapter.language_model.register_forward_hook(second)
    try:
        for method, drawn in (("ar", draw), ("gumbel", draw), ("csd", draw), ("csd", draw_naively)):
            forwards.clear()
            image = drawn(tiny, methods()[method])
            assert image.passes == len(forwards) - 1 and image.seconds_per_pass == 1.0
            assert image.tokens.shape == (1, 64) and sum(image.accepted) + image.passes == 63
    finally:
        hook.remove()


@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_draws_the_same_image(tiny, monkeypatch, name):
    put_in_place(monkeypatch)
    parts, replays = methods()["gumbel"], Tape.replays
    eager = draw(tiny, parts)
    run_pass = LOOPS[name].make()
    for _ in range(3):
        image = draw(tiny, parts, run_pass)
        assert (image.tokens == eager.tokens).all() and image.accepted == eager.accepted
    assert (Tape.replays > replays) == (name == "captured")


def test_median_seconds_per_pass_after_the_warm_up(tiny, monkeypatch):
    seconds = iter([1000.0, 10.0, 80.0, 20.0])
    drawn = []

    def image(target, parts, run_pass):
        drawn.append(run_pass)
        return Image(None, 10, next(seconds), [])

    monkeypatch.setattr(loops, "draw", image)
    figure = loops.time_loop(tiny, {}, LOOPS["eager"])
    assert figure["seconds_per_pass"] == 2.0 and figure["passes"] == 10 and len(set(map(id, drawn))) == 1


def test_a_tail_is_the_pass_less_the_forward_of_the_same_way_and_width():
    forwards = {
        "eager": {"1": {"seconds": 4.0}, "16": {"seconds": 5.0}},
        "graph": {"1": {"seconds": 1.0}, "16": {"seconds": 2.0}},
        "compiled": {"1": "not measured: no time left"},
    }
    figures = {
        "ar": {name: {"seconds_per_pass": 5.0} for name in ("eager", "captured", "compiled")},
        "csd": {"eager": {"seconds_per_pass": 6.0}, "captured": "not measured: only on a GPU"},
    }
    loops.add_tails(figures, forwards, {"ar": 1, "csd": 16})
    tails = {
        (m, n): f if isinstance(f, str) else f["tail_seconds"] for m, loop in figures.items() for n, f in loop.items()
    }
    assert tails == {
        ("ar", "eager"): 1.0,
        ("ar", "captured"): 4.0,
        ("ar", "compiled"): "not measured: no time left",
        ("csd", "eager"): 1.0,
        ("csd", "captured"): "not measured: only on a GPU",
    }
    assert (
        figures["ar"]["eager"]["overhead"] == 0.25 and figures["ar"]["compiled"]["overhead"] == tails["ar", "compiled"]
    )
