import json
from dataclasses import replace

import pytest
import torch
from gpu_stand_ins import put_in_place

from csd_pipeline.decoding import RunPass
from csd_pipeline.evaluation.gpu_suite import loops, steps, suite
from csd_pipeline.evaluation.gpu_suite.forward import FORWARDS, as_written
from csd_pipeline.evaluation.gpu_suite.loop_table import LOOPS
from csd_pipeline.evaluation.gpu_suite.shapes import SHAPES
from csd_pipeline.evaluation.gpu_suite.steps import Step
from csd_pipeline.evaluation.gpu_suite.table import markdown
from csd_pipeline.evaluation.gpu_suite.time_budget import TimeBudget

SECTIONS = {
    "parameters",
    "forward",
    "bytes",
    "bandwidth",
    "loops",
    "naive",
    "naive_over_ours",
    "agreement",
    "memory",
    "syncs",
}
ONLY_ON_GPU = "not measured: only on a GPU"
TINY = [SHAPES["tiny"]]


def leaves(figure) -> list:
    return [leaf for value in figure.values() for leaf in leaves(value)] if isinstance(figure, dict) else [figure]


@pytest.fixture(scope="module")
def on_cpu() -> dict:
    return suite.run_suite(TINY, "cpu")


def test_every_section_is_there_and_json_holds_it(on_cpu):
    assert set(on_cpu["shapes"]["tiny"]) == SECTIONS and on_cpu["failures"] == []
    assert json.loads(json.dumps(on_cpu, allow_nan=False)) == on_cpu
    assert on_cpu["seconds"] < on_cpu["seconds_allowed"] and any("mean nothing" in note for note in on_cpu["notes"])


def test_figures_of_a_gpu_are_not_measured_on_a_processor(on_cpu):
    figures = on_cpu["shapes"]["tiny"]
    foreign = [figures[name] for name in ("memory", "syncs")] + [{"all": figures["bandwidth"]}]
    foreign += [figures["forward"][way] for way in ("compiled",)] + [{"all": figures["forward"]["graph"]}]
    foreign += [{"all": loops[name]} for loops in figures["loops"].values() for name in ("captured", "compiled")]
    foreign += [{name: figures["naive_over_ours"][name] for name in ("captured", "compiled")}]
    assert {leaf for section in foreign for leaf in leaves(section)} == {ONLY_ON_GPU}


def test_figures_follow_from_each_other(on_cpu):
    figures = on_cpu["shapes"]["tiny"]
    forwards, eager = figures["forward"]["eager"], {name: loops["eager"] for name, loops in figures["loops"].items()}
    assert list(forwards) == ["1", "2", "4", "8", "16", "32", "64"]
    assert all(figure["ratio"] == figure["seconds"] / forwards["1"]["seconds"] for figure in forwards.values())
    assert eager["ar"]["forward_seconds"] == forwards["1"]["seconds"] and eager["ar"]["passes"] == 63
    assert {eager[name]["forward_seconds"] for name in ("gumbel", "csd")} == {forwards["16"]["seconds"]}
    naive = figures["naive"]["seconds_per_pass"]
    assert figures["naive_over_ours"]["eager"] == naive / eager["csd"]["seconds_per_pass"]


def test_the_tables_hold_numbers_and_say_what_is_missing(on_cpu):
    text = markdown(on_cpu)
    assert text.startswith("no GPU") and "| tiny | graph |" + " not measured |" * 7 in text
    rows = [line for line in text.splitlines() if line.startswith("| tiny | csd | eager |")]
    assert len(rows) == 1 and "not measured" not in rows[0]


def test_every_step_of_a_gpu_runs_to_its_end(monkeypatch):
    """With stand-ins for what a processor has not, and for the compiler, which the tests of loops and forwards run."""
    put_in_place(monkeypatch)
    monkeypatch.setitem(FORWARDS, "compiled", as_written)
    monkeypatch.setitem(LOOPS, "compiled", replace(LOOPS["compiled"], make=RunPass))
    monkeypatch.setattr(steps, "WINDOWS", (1, 16))
    monkeypatch.setattr(loops, "IMAGES", 1)
    plan = suite._plan
    monkeypatch.setattr(suite, "_plan", lambda shapes: ((s, replace(step, on_cpu=True)) for s, step in plan(shapes)))
    told = []
    result = suite.run_suite(TINY, "cpu", told.append)
    assert result["failures"] == [] and len(told) == len(list(plan(TINY)))
    figures = dict(result["shapes"]["tiny"])
    assert figures.pop("bandwidth") == ONLY_ON_GPU
    assert set(leaves(figures.pop("syncs"))) == {"clean"}
    assert [leaf for leaf in leaves(figures) if isinstance(leaf, str)] == []
    assert list(figures["forward"]["compiled"]) == ["1", "16"]
    assert "W=" in markdown(result) and "100.0%" in markdown(result)


def test_what_does_not_fit_is_named():
    result = suite.run_suite(TINY, "cpu", seconds=0)
    figures = result["shapes"]["tiny"]
    missing = {leaf for name, figure in figures.items() if name != "bandwidth" for leaf in leaves({"": figure})}
    assert missing == {"not measured: no time left", ONLY_ON_GPU}
    assert figures["naive"] == figures["forward"]["eager"] == "not measured: no time left"
    assert "not measured" in markdown(result)


def test_a_failure_costs_its_own_figure_only():
    def fail(target):
        raise RuntimeError("out of memory\nand a long story")

    run, figures = suite._Run(torch.device("cpu"), print, TimeBudget(100)), {}
    for name, work in (("failing", fail), ("sound", lambda target: target.tokens)):
        run.take(TINY[0], Step(("section", name), work, name, 1, on_cpu=True), figures)
    assert figures == {"section": {"failing": "not measured: it failed, see failures", "sound": 64}}
    assert run.failures == ["tiny section failing: RuntimeError: out of memory"]


def test_compiling_comes_last_for_all_shapes():
    plan = [(shape.name, "compiled" in step.path) for shape, step in suite._plan([SHAPES["1b"], SHAPES["7b"]])]
    first = plan.index(("1b", True))
    assert not any(compiles for _, compiles in plan[:first]) and all(compiles for _, compiles in plan[first:])
