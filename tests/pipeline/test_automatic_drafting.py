"""`window="auto"` and `redraw="auto"`: chosen per call by time and acceptance, recorded as what they were."""

import pytest
import torch
from helpers import run_toy
from helpers_tape import Tape, Tapes
from tiny_janus import PROMPT, draw, tiny_model, tiny_pipeline

from csd_pipeline import automatic_drafting
from csd_pipeline.decoding import CapturedPass, CompiledPass, RunPass, WatchedPass
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.drafters.window_choice import WINDOWS
from csd_pipeline.evaluation.arms import Arm
from csd_pipeline.recipe import rebuild_parts
from csd_pipeline.relaxation import EntropyRelaxation, Exact
from csd_pipeline.targets.toy import ToyTarget


@pytest.fixture
def automatic(shared):
    return tiny_pipeline(target=shared.target, drafter=JacobiDrafter("auto", "coupled"))


def flat(adapter, prompt, warp, run_pass):
    return dict.fromkeys((1, 4, 12), 1.0)


def steep(adapter, prompt, warp, run_pass):
    return {1: 1.0, 4: 50.0, 12: 50.0}


@pytest.mark.parametrize(("times", "window"), [(flat, 12), (steep, 1)])
def test_the_recipe_holds_the_number_and_draws_the_same_tokens(automatic, shared, monkeypatch, times, window):
    monkeypatch.setattr(automatic_drafting, "time_forwards", times)
    output = automatic(PROMPT, seed=7, output_type="latent")
    recipe = output.recipes[0]
    assert recipe["drafter"]["window"] == window and recipe["drafter"]["redraw"] == "coupled"
    assert automatic.drafter.config.window == "auto"
    again = tiny_pipeline(target=shared.target, **rebuild_parts(recipe))
    assert torch.equal(output.images, again(PROMPT, seed=7, output_type="latent").images)


def test_what_was_accepted_moves_the_choice(automatic, monkeypatch):
    """A picture in which no draft is accepted makes any window wider than 1 a loss; another method is not touched."""
    monkeypatch.setattr(automatic_drafting, "time_forwards", lambda *_: {1: 1.0, 4: 1.5})
    first = automatic(PROMPT, seed=7, output_type="latent")
    assert first.recipes[0]["drafter"]["window"] == 4
    (record,) = automatic._automatic_drafting._records.values()
    assert record.passes == {4: first.traces[0].nfe} and record.tokens == {4: 15}
    record.passes, record.tokens = {4: 500}, {4: 510}
    assert automatic(PROMPT, seed=7, output_type="latent").recipes[0]["drafter"]["window"] == 1
    hotter = automatic(PROMPT, seed=7, output_type="latent", temperature=0.5)
    assert hotter.recipes[0]["drafter"]["window"] == 4


def test_a_wider_window_is_tried_and_kept_where_it_is_faster(automatic, monkeypatch):
    """At the prior 1.5 times the time is not worth 12 tokens instead of 4; what is committed says whether it is."""
    monkeypatch.setattr(automatic_drafting, "time_forwards", lambda *_: {4: 1.0, 12: 1.5})
    monkeypatch.setattr("csd_pipeline.drafters.window_choice.ENOUGH", 1)
    windows = []
    for seed in range(3):
        windows.append(automatic(PROMPT, seed=seed, output_type="latent").recipes[0]["drafter"]["window"])
    (record,) = automatic._automatic_drafting._records.values()
    assert windows[:2] == [4, 12] and set(record.passes) == {4, 12}
    faster = 12 if record.tokens_per_pass(12) / 1.5 > record.tokens_per_pass(4) else 4
    assert automatic(PROMPT, seed=9, output_type="latent").recipes[0]["drafter"]["window"] == faster


def test_pictures_whose_guidance_a_callback_changed_teach_nothing(automatic):
    def change(pipeline, step, timestep, tensors):
        pipeline._guidance_scale = 3.0
        return {}

    automatic(PROMPT, seed=7, output_type="latent", callback_on_step_end=change)
    assert not automatic._automatic_drafting._records
    automatic(PROMPT, seed=7, output_type="latent")
    assert len(automatic._automatic_drafting._records) == 1


def test_another_model_is_another_record(automatic):
    automatic(PROMPT, seed=7, output_type="latent")
    automatic.register_modules(target=tiny_model())
    automatic(PROMPT, seed=7, output_type="latent")
    assert len(automatic._automatic_drafting._records) == 2


def test_forwards_are_timed_once_per_batch_size(automatic, monkeypatch):
    asked = []
    time_forwards = automatic_drafting.time_forwards

    def counted(adapter, prompt, warp, run_pass):
        asked.append(prompt.images)
        return time_forwards(adapter, prompt, warp, run_pass)

    monkeypatch.setattr(automatic_drafting, "time_forwards", counted)
    for images, batch_size in ((1, None), (1, None), (5, 2), (2, None), (3, None)):
        automatic(PROMPT, seed=1, num_images_per_prompt=images, batch_size=batch_size, output_type="latent")
    assert asked == [1, 2, 3]


def dear_rows(adapter, prompt, warp, run_pass):
    """A processor: what eight rows cost is free, every further one is as dear as the first eight."""
    return {window: max(8.0, 2 * prompt.images * window) for window in (1, 4, 8, 16)}


def test_the_window_is_that_of_the_batch_size(automatic, monkeypatch):
    """Windows of 1, 4, 8 commit 1, 2.5, 3.1 tokens at the prior: in 8, 8, 16 s of one image, in 16, 64, 128 s of 8."""
    monkeypatch.setattr(automatic_drafting, "time_forwards", dear_rows)
    chosen = {}
    for images, batch_size in ((1, None), (8, None), (9, 1)):
        automatic._automatic_drafting._records.clear()
        output = automatic(PROMPT, seed=1, num_images_per_prompt=images, batch_size=batch_size, output_type="latent")
        chosen[images, batch_size] = output.recipes[0]["drafter"]["window"]
    assert chosen == {(1, None): 4, (8, None): 1, (9, 1): 4}


def test_every_width_that_fits_is_timed_without_counting_as_a_forward_of_the_picture(automatic):
    output = automatic(PROMPT, seed=1, output_type="latent")
    (seconds,) = automatic._automatic_drafting._seconds.values()
    assert list(seconds) == [w for w in WINDOWS if w <= 16] and min(seconds.values()) > 0
    assert output.traces[0].nfe == len(output.traces[0].accepted) <= 15


def test_a_slow_spell_does_not_fall_on_one_window(automatic, shared, monkeypatch):
    """A clock by which all forwards take one unit but the first ones, while something else runs, ten."""
    ticks = []

    def clock():
        ticks.append((ticks[-1] if ticks else 0.0) + (10.0 if len(ticks) < 20 else 1.0))
        return ticks[-1]

    monkeypatch.setattr(automatic_drafting.time, "perf_counter", clock)
    automatic(PROMPT, seed=1, output_type="latent")
    (seconds,) = automatic._automatic_drafting._seconds.values()
    assert set(seconds.values()) == {1.0}


def test_a_saved_folder_keeps_the_word(automatic, tmp_path):
    automatic.drafter.save_config(tmp_path)
    assert JacobiDrafter.from_pretrained(tmp_path).config.window == "auto"
    assert draw(automatic).shape == (1, 16)


@pytest.mark.parametrize("drafter", [JacobiDrafter("auto"), JacobiDrafter(4, "auto")])
def test_arms_of_a_comparison_stay_what_they_are(drafter):
    with pytest.raises(ValueError, match="arm 'mine': a comparison needs knobs that stay"):
        Arm("mine", {"drafter": drafter, "relaxation": Exact(), "alignment_filter": None})


@pytest.mark.parametrize(("rule", "first"), [(Exact(), "gumbel"), (EntropyRelaxation(0.5), "coupled")])
def test_the_redraw_is_the_preferred_one_until_it_accepts_less_than_others_may(shared, rule, first):
    pipe = tiny_pipeline(target=shared.target, drafter=JacobiDrafter(4, "auto"), relaxation=rule)
    recipe = pipe(PROMPT, seed=7, output_type="latent").recipes[0]
    assert recipe["drafter"]["redraw"] == first and recipe["drafter"]["window"] == 4
    assert not pipe._automatic_drafting._seconds  # the window stands, so no forward is timed
    used = [first]
    for _ in range(2):  # each in turn accepts next to nothing
        (newest,) = [record for record in pipe._automatic_drafting._records.values() if record.passes[4] < 400]
        newest.passes, newest.tokens = {4: 500}, {4: 500 + len(used)}
        used.append(pipe(PROMPT, seed=7, output_type="latent").recipes[0]["drafter"]["redraw"])
    assert sorted(used) == sorted(REDRAWS) and used[-1] == "fresh"
    (newest,) = [record for record in pipe._automatic_drafting._records.values() if record.passes[4] < 400]
    newest.passes, newest.tokens = {4: 500}, {4: 500}
    assert pipe(PROMPT, seed=7, output_type="latent").recipes[0]["drafter"]["redraw"] == used[1]  # the best of the bad


def test_redraw_and_window_are_chosen_together(shared, monkeypatch):
    monkeypatch.setattr(automatic_drafting, "time_forwards", flat)
    pipe = tiny_pipeline(target=shared.target, drafter=JacobiDrafter("auto", "auto"), relaxation=Exact())
    output = pipe(PROMPT, seed=7, output_type="latent")
    assert (output.recipes[0]["drafter"]["window"], output.recipes[0]["drafter"]["redraw"]) == (12, "gumbel")
    again = tiny_pipeline(target=shared.target, **rebuild_parts(output.recipes[0]))
    assert torch.equal(output.images, again(PROMPT, seed=7, output_type="latent").images)


def test_a_tree_goes_with_an_automatic_redraw_but_not_a_lossy_record(shared):
    """Which redraw it is changes nothing but speed for the first, and the law of the pictures for the second."""
    pipe = tiny_pipeline(target=shared.target, drafter=JacobiDrafter(4, "auto", tree_depth=2), relaxation=Exact())
    plain = tiny_pipeline(target=shared.target, drafter=JacobiDrafter(1), relaxation=Exact())
    output = pipe(PROMPT, seed=7, output_type="latent")
    assert (output.recipes[0]["drafter"]["redraw"], output.recipes[0]["drafter"]["tree_depth"]) == ("gumbel", 2)
    assert torch.equal(output.images, plain(PROMPT, seed=7, output_type="latent").images)
    with pytest.raises(ValueError, match="with record=lossy each draws another law; choose a redraw, or record=exact"):
        JacobiDrafter(4, "auto", guide="growth", record="lossy")


def test_outside_a_pipeline_auto_is_the_coupled_redraw():
    tokens = [run_toy(ToyTarget(3, 2, 2), JacobiDrafter(3, redraw), range(50)).tokens for redraw in ("auto", "coupled")]
    assert torch.equal(*tokens)


class CountedWays(CapturedPass):
    """Captured on tape; notes the windows whose forward it was given to run alike."""

    def __init__(self):
        super().__init__(graphs=Tapes)
        self.windows = []

    def alike(self, work):
        def noted(tokens, committed):
            self.windows.append(tokens.shape[1])
            return work(tokens, committed)

        return super().alike(noted)


def test_forwards_are_timed_in_the_way_passes_run(automatic, monkeypatch):
    """Captured: two of every window as written and one recorded, and all eight that are timed are replays."""
    way, replays, time_forwards = CountedWays(), [], automatic_drafting.time_forwards

    def counted(*arguments):
        before = Tape.replays
        seconds = time_forwards(*arguments)
        replays.append(Tape.replays - before)
        return seconds

    monkeypatch.setattr(automatic_drafting, "time_forwards", counted)
    automatic._run_pass = way
    automatic(PROMPT, seed=7, output_type="latent")
    assert {window: way.windows.count(window) for window in way.windows} == dict.fromkeys((1, 4, 8, 16), 3)
    automatic._run_pass = RunPass()
    automatic(PROMPT, seed=7, output_type="latent")
    assert replays == [4 * 8, 0]
    assert len(automatic._automatic_drafting._seconds) == 2 and len(automatic._automatic_drafting._records) == 1


def test_a_forward_run_alike_computes_what_it_is_given():
    """Compiled: every shape its own values, also after others; captured: those of the first call of a shape."""

    def work(x, y):
        return x * 2 + y

    first, other = torch.arange(3.0), torch.arange(5.0)
    compiled = CompiledPass(backend="eager").alike(work)
    for _ in range(3):
        for values in (first, other, first + 1):
            assert torch.equal(compiled(values, values), 3 * values)
    replayed = CapturedPass(graphs=Tapes).alike(work)
    for values in (first, first + 1, other):
        assert torch.equal(replayed(values, values), 3 * (other if len(values) == 5 else first))


def test_ways_to_run_passes_are_told_apart():
    ways = [RunPass(), CompiledPass(), CompiledPass(mode="max-autotune"), CapturedPass(), CapturedPass(CompiledPass())]
    assert len({way.kind for way in ways}) == 5
    assert CompiledPass().kind == CompiledPass().kind and WatchedPass(CapturedPass()).kind == CapturedPass().kind
