import pytest

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.alignment import DriftBudget, TVFilter
from csd_pipeline.decoding import Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.evaluation.arms import Arm
from csd_pipeline.evaluation.bench import Bench
from csd_pipeline.relaxation import EntropyRelaxation, Exact

RELEASED_CSD = EntropyRelaxation(0.5, support_guard=False, relax_fresh=True)


def parts_of(relaxation, alignment_filter=None, window=8, redraw="fresh", init="uniform") -> dict:
    drafter = JacobiDrafter(window, redraw, init)
    return {"drafter": drafter, "relaxation": relaxation, "alignment_filter": alignment_filter}


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(CSDAutoregressivePipeline.from_pretrained("embedded"), Warp(guidance_scale=1.5, temperature=1.0))


@pytest.mark.parametrize(
    "parts",
    [
        parts_of(Exact()),
        parts_of(RELEASED_CSD, TVFilter(0.65)),
        parts_of(RELEASED_CSD, TVFilter(0.8), window=32),
        parts_of(RELEASED_CSD, window=3),
    ],
    ids=["sjd", "csd", "csd-wide", "csd-without-filter"],
)
def test_it_makes_the_decisions_of_our_loop(bench, parts):
    forwards = []
    hook = bench.adapter.language_model.register_forward_hook(lambda *_: forwards.append(1))
    naive = bench.decode(Arm("naive", parts, loop="naive"), "panda on grass", seed=4)
    hook.remove()
    ours = bench.decode(Arm("ours", parts), "panda on grass", seed=4)
    assert (naive.tokens == ours.tokens).all()
    assert naive.accepted == ours.accepted and naive.drafted == ours.drafted
    assert naive.nfe == ours.nfe == len(forwards) - 1  # the prefill
    assert naive.drift_per_token == pytest.approx(ours.drift_per_token, rel=1e-3)
    assert (naive.drift_per_token > 0) == (not parts["relaxation"].exact)


@pytest.mark.parametrize(
    "parts",
    [
        parts_of(Exact(), redraw="coupled"),
        parts_of(Exact(), init="mean"),
        parts_of(EntropyRelaxation(0.5)),
        parts_of(RELEASED_CSD, DriftBudget(0.1)),
    ],
)
def test_methods_nobody_released_are_refused(parts):
    with pytest.raises(ValueError, match=r"loop=naive repeats released loops.*redraw=fresh init=uniform"):
        Arm("naive", parts, loop="naive")


def test_unknown_loops_are_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'naive'"):
        Arm("x", parts_of(Exact()), loop="naiv")
