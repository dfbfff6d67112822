from functools import partial

import pytest

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.decoding import CompiledPass, Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.evaluation.arms import Arm, plain_arms
from csd_pipeline.evaluation.bench import Bench
from csd_pipeline.evaluation.clocks import CompiledForwards
from csd_pipeline.evaluation.prompt_accuracy import PromptAccuracy
from csd_pipeline.evaluation.summary import acceptance_counts
from csd_pipeline.relaxation import EntropyRelaxation, Exact

PROMPTS = ["red apple on white", "panda on grass"]
GUMBEL = {"drafter": JacobiDrafter(64, "gumbel"), "relaxation": Exact(), "alignment_filter": None}
RELAXED = {"drafter": JacobiDrafter(16), "relaxation": EntropyRelaxation(0.5), "alignment_filter": None}


@pytest.fixture(scope="module")
def bench() -> Bench:
    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    return Bench(pipeline, Warp(guidance_scale=1.5, temperature=0.8), PromptAccuracy.load())


@pytest.fixture(scope="module")
def runs(bench):
    arms, told = [*plain_arms(), Arm("gumbel W=64", GUMBEL)], []
    runs = bench.run(arms, PROMPTS, 3, told.append)
    assert told == [0, 1, 2]
    return runs


def test_arms_run_interleaved_on_the_same_seeds(runs):
    names = ["ar", "ar (other seeds)", "gumbel W=64", "transformers"]
    assert [run.arm for run in runs] == 2 * names
    assert [run.seed for run in runs if run.arm != "ar (other seeds)"] == [3, 3, 3, 4, 4, 4]
    assert [(run.number, run.prompt) for run in runs[::4]] == list(enumerate(PROMPTS))


def test_the_same_picture_has_the_same_figures_in_fewer_forwards(runs):
    for plain, fast in zip(runs[::4], runs[2::4], strict=True):
        assert (plain.tokens == fast.tokens).all() and fast.nfe < plain.nfe == 255
        assert (plain.nats_per_token, plain.subject) == (fast.nats_per_token, fast.subject)
        assert plain.drift_per_token == fast.drift_per_token == 0
        assert plain.tokens_per_step == 1 and sum(fast.accepted) + fast.nfe == 255


def test_seconds_lie_inside_each_other_and_memory_is_known_for_every_arm(bench, runs):
    for run in runs:
        watched = run.arm != "transformers"
        assert (0 < run.prefill_wall + run.forward_wall <= run.wall) if watched else run.forward_wall is None
    assert set(bench.peak_memory) == {run.arm for run in runs}


def test_forwards_are_those_of_the_model(bench, runs):
    calls = []
    hook = bench.adapter.language_model.register_forward_hook(lambda *_: calls.append(1))
    ours, theirs = partial(bench.decode, Arm("x", RELAXED)), bench.decode_with_transformers
    for decode in (ours, theirs):
        run = decode(PROMPTS[0], 9)
        assert run.nfe == len(calls) - 1 and run.tokens.shape == (1, 256)
        calls.clear()
    hook.remove()


def test_acceptance_by_index_is_that_of_the_trace(bench):
    run = bench.decode(Arm("x", RELAXED), PROMPTS[1], 2)
    _, trace = bench.maps(Arm("x", RELAXED), PROMPTS[1], 2)
    assert run.accepted == trace.accepted and run.drift_per_token == trace.drift_per_token > 0
    tested, accepted = acceptance_counts([run])
    assert sum(accepted) == 255 - trace.nfe  # every pass commits one token that was no accepted draft
    assert tested[0] == sum(length > 0 for length in run.drafted)
    stopped = sum(tested) - sum(accepted)  # a pass rejects one draft unless it accepts all it has
    assert stopped == sum(a < d for a, d in zip(run.accepted, run.drafted, strict=True))


def test_the_naive_loop_is_refused_where_it_knows_no_model(bench, monkeypatch):
    monkeypatch.setattr(bench.adapter, "family", "toy")
    parts = GUMBEL | {"drafter": JacobiDrafter(4, "fresh", "uniform")}
    with pytest.raises(ValueError, match="knows Janus targets only, this is toy"):
        bench.run([Arm("naive", parts, loop="naive")], PROMPTS, 0)


def test_compiled_arms_are_timed_beside_compiled_forwards(bench, monkeypatch):
    """The pictures of the uncompiled arm; forwards are counted once, though the image is drawn twice."""
    monkeypatch.setattr(bench, "_compiled", CompiledPass(backend="eager"))
    monkeypatch.setattr(bench, "_forwards", CompiledForwards("cpu", {"backend": "eager", "fullgraph": True}))
    for warm in range(2):
        run = bench.decode(Arm("fast", GUMBEL, "compiled"), PROMPTS[0], 3 + warm)
    plain = bench.decode(Arm("x", GUMBEL), PROMPTS[0], 4)
    assert (run.tokens == plain.tokens).all() and run.accepted == plain.accepted and run.nfe == plain.nfe
    assert run.drafted == [63] * run.nfe  # whole windows, also at the end
    assert run.prefill_wall > 0 and run.forward_wall > 0 and run.prefill_wall < run.wall
