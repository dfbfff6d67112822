"""Captured once, replayed for the rest of the image and for the next ones: the very decisions of the eager pass."""

import pytest
import torch
from helpers import SEED_BASES, law_p_value, rule_of, run_toy, seeds_from
from helpers_janus import left_padded, prompt_batch, tiny_janus
from helpers_tape import Tape, Tapes, captured

from csd_pipeline.alignment import FILTERS, ImageBudget
from csd_pipeline.decoding import CapturedPass, NonFiniteLogits, RunPass, Warp, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.entry import ENTRIES
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.relaxation import RELAXATIONS, EntropyRelaxation, Exact
from csd_pipeline.targets import adapter_for
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

MODEL = tiny_janus("sdpa")
WARP = Warp(guidance_scale=2.0, temperature=0.8)
TOY = ToyTarget(3, 2, 2, scale=1.2)


def draw(prompts, seeds, run_pass=None, warp=WARP, **parts):
    adapter, drafter = adapter_for(MODEL), parts["drafter"]
    session = adapter.open(prompt_batch(*left_padded(*prompts)), drafter.window + drafter.extra_tokens)
    parts = {"relaxation": Exact(), **parts}
    return decode(session, adapter, seeds=seeds, warp=warp, maps=True, run_pass=run_pass, **parts)


def same(mine, other):
    assert torch.equal(mine.tokens, other.tokens) and mine.complete
    for one, two in zip(mine.traces, other.traces, strict=True):
        assert one.accepted == two.accepted and one.nfe == two.nfe and one.drift == pytest.approx(two.drift, abs=1e-5)
        assert all(torch.allclose(one.maps[n], two.maps[n], atol=1e-4, equal_nan=True) for n in one.maps)


METHODS = {
    "plain": {"drafter": JacobiDrafter(1, "gumbel")},
    "gumbel": {"drafter": JacobiDrafter(5, "gumbel")},
    "coupled": {"drafter": JacobiDrafter(5, "coupled", "left")},
    "tree": {"drafter": JacobiDrafter(5, "coupled", tree_depth=2, tree_width=2)},
    "guided": {"drafter": JacobiDrafter(5, "coupled", guide="growth")},
    "relaxed": {
        "drafter": JacobiDrafter(5, "fresh", "uniform"),
        "relaxation": EntropyRelaxation(0.5, relax_fresh=True),
        "alignment_filter": ImageBudget(1.0),
    },
}


@pytest.mark.parametrize("name", METHODS)
def test_replays_decide_as_the_pass_itself(name):
    run_pass, before = captured(), Tape.replays
    for seed, prompt in enumerate(([2, 3, 4], [5, 6], [7, 8, 9, 10, 11], [2])):
        same(draw([prompt], [seed], run_pass, **METHODS[name]), draw([prompt], [seed], **METHODS[name]))
    assert Tape.replays - before > 5


@pytest.mark.parametrize("unread", [0, 1, 2])
@pytest.mark.parametrize("name", METHODS)
def test_what_the_host_reads_late_is_the_same(name, unread):
    """Finished images stay in their slots; passes that run on them meanwhile change nothing and are counted apart."""
    run_pass, prompts = captured(), [[2, 3, 4], [5, 6], [7, 8, 9, 10]]
    for seeds in ([1, 2, 3], [2**64 - 1, 5, 6]):
        plain = draw(prompts, seeds, **METHODS[name])
        late = draw(prompts, seeds, run_pass, unread=unread, **METHODS[name])
        same(late, plain)
        same(draw(prompts, seeds, unread=unread, **METHODS[name]), plain)  # as written they leave late
        assert all(trace.wasted_nfe == unread for trace in late.traces if trace.nfe == max(t.nfe for t in plain.traces))


def test_other_settings_are_captured_anew():
    run_pass = captured()
    for warp in (WARP, Warp(guidance_scale=3.0, temperature=0.8), Warp(2.0, 0.8, top_k=3), WARP):
        options = {"warp": warp, **METHODS["gumbel"]}
        same(draw([[2, 3]], [3], run_pass, **options), draw([[2, 3]], [3], **options))


ENTROPY = EntropyRelaxation(0.5, relax_fresh=True)
TOY_METHODS = {
    f"{redraw} {init}": {"drafter": JacobiDrafter(3, redraw, init)} for redraw in REDRAWS for init in ENTRIES
}
TOY_METHODS |= {f"rule {name}": {"relaxation": rule_of(name, 3)} for name in RELAXATIONS}
TOY_METHODS |= {f"filter {name}": {"relaxation": ENTROPY, "alignment_filter": FILTERS[name]()} for name in FILTERS}
TOY_METHODS |= {f"tree {r}": {"drafter": JacobiDrafter(3, r, tree_depth=2, tree_width=2)} for r in REDRAWS}
TOY_METHODS |= {f"guide {r}": {"drafter": JacobiDrafter(3, r, guide="growth")} for r in REDRAWS}


@pytest.mark.parametrize("name", TOY_METHODS)
def test_every_method_draws_token_for_token_what_it_draws_uncaptured(name):
    """So whatever is proven of the laws of uncaptured decoding holds for captured decoding."""
    run_pass, before = captured(), Tape.replays
    for base in (0, 2**63):  # the second batch is put into the storage of the first
        seeds = seeds_from(base, 500)
        mine = run_toy(TOY, seeds=seeds, run_pass=run_pass, **TOY_METHODS[name])
        plain = run_toy(TOY, seeds=seeds, **TOY_METHODS[name])
        assert torch.equal(mine.tokens, plain.tokens)
        assert [t.accepted for t in mine.traces] == [t.accepted for t in plain.traces]
    assert Tape.replays > before


@pytest.mark.parametrize("base", SEED_BASES)
def test_the_output_law_is_the_law_of_the_target(base):
    run_pass, tokens = captured(), []
    for start in range(0, 20_000, 10_000):
        seeds = seeds_from(base + start, 10_000)
        tokens.append(run_toy(TOY, JacobiDrafter(3, "coupled"), seeds, run_pass=run_pass).tokens)
    assert law_p_value(torch.cat(tokens), TOY.enumerate_law(Warp())) > 1e-3


def test_numbers_left_by_a_failed_call_do_no_harm_to_the_next():
    run_pass, method = captured(), METHODS["coupled"]
    draw([[2, 3, 4]], [0], run_pass, **method)
    layer = MODEL.model.language_model.layers[0].self_attn.v_proj.weight
    whole = layer.detach().clone()
    try:
        layer.data.fill_(torch.nan)
        with pytest.raises(NonFiniteLogits):
            draw([[2, 3, 4]], [1], run_pass, **method)
    finally:
        layer.data.copy_(whole)
    same(draw([[2, 3]], [2], run_pass, **method), draw([[2, 3]], [2], **method))


def test_a_first_pass_that_failed_is_run_again_before_it_is_captured():
    method, failed = METHODS["tree"], []

    class Failing(RunPass):
        def __call__(self, run, length):
            if not failed:
                failed.append(length)
                raise MemoryError
            return super().__call__(run, length)

    run_pass = CapturedPass(Failing(), graphs=Tapes)
    with pytest.raises(MemoryError):
        draw([[2, 3, 4]], [0], run_pass, **method)
    for seed in (0, 1):
        same(draw([[2, 3, 4]], [seed], run_pass, **method), draw([[2, 3, 4]], [seed], **method))


@pytest.mark.parametrize("name", ["neighbour", "phrase"])
def test_tables_of_a_rule_stay_where_they_were(name):
    rule, adapter = rule_of(name, 3), ToyAdapter(TOY)
    rule.prepare(adapter)
    tables = [rule._neighbours] if name == "neighbour" else list(rule._known.values())
    rule.prepare(adapter)
    again = [rule._neighbours] if name == "neighbour" else list(rule._known.values())
    assert tables and [t.data_ptr() for t in tables] == [t.data_ptr() for t in again]


def test_a_longer_prompt_than_there_is_room_for_gets_storage_of_its_own():
    run_pass, method = captured(), METHODS["gumbel"]
    for prompt in ([2, 3], [2, 3, 4] * 20, [4, 5]):
        same(draw([prompt], [3], run_pass, **method), draw([prompt], [3], **method))
    assert len(run_pass._rooms) == 1


def test_an_interruption_reports_tokens_and_counts_of_the_same_pass():
    adapter = adapter_for(MODEL)
    session = adapter.open(prompt_batch(*left_padded([2, 3, 4])), 5)
    parts = {"warp": WARP, "relaxation": Exact(), **METHODS["gumbel"]}
    stopped = decode(session, adapter, seeds=[3], unread=2, on_pass=lambda p: p.passes < 2, **parts)
    whole = draw([[2, 3, 4]], [3], **METHODS["gumbel"])
    count = stopped.traces[0].tokens
    assert not stopped.complete and 0 < count < 16
    assert torch.equal(stopped.tokens[0, :count], whole.tokens[0, :count]) and not stopped.tokens[0, count:].any()


def test_a_capture_of_memory_that_nobody_keeps_is_noticed():
    """By the tape, so that every test on it proves that captures read nothing but what their run keeps."""
    there, tape = [torch.ones(3), torch.ones(3)], Tape()
    result = tape.record(lambda: there[0][1:] * 2 + there[1][1:])
    there[0].fill_(2.0)
    tape.replay()
    assert result.tolist() == [5.0, 5.0]
    del there[0]
    with pytest.raises(AssertionError, match="nobody keeps"):
        tape.replay()
