import pytest
import torch
from helpers import emitted, random_laws, run_toy, window_of

from csd_pipeline.alignment import DriftBudget, ImageBudget
from csd_pipeline.alignment.image_budget import run_lengths
from csd_pipeline.decoding.verification import overshoot
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import RELAXATIONS, AdditionRelaxation
from csd_pipeline.targets.toy import ToyTarget


def test_worth_of_a_draft_is_the_run_behind_it():
    worth = run_lengths(torch.tensor([[0.5, 0.8, 0.25, 0.0]], dtype=torch.float64))
    # from the back: 1, 1 + 0, 1 + .25 * 1, 1 + .8 * 1.25
    assert torch.allclose(worth, torch.tensor([[2.0, 1.25, 1.0, 1.0]], dtype=torch.float64), atol=1e-5)
    acceptance = torch.rand(50, 9, generator=torch.Generator().manual_seed(1))
    slow = torch.ones_like(acceptance)
    for i in reversed(range(8)):
        slow[:, i] = 1 + acceptance[:, i + 1] * slow[:, i + 1]
    assert torch.allclose(run_lengths(acceptance), slow, atol=1e-4)


def a_window(start=0, spent=0.0, total=64):
    laws = [random_laws(4000, 6, seed=seed).view(500, 8, 6) for seed in (1, 2)]
    q = 0.5 * laws[0] + 0.5 * laws[1]
    window = window_of(laws[0], q, q.argmax(-1), lengths=torch.full((500,), 8))
    window.start, window.total = torch.full((500,), start), total
    window.spent = torch.full((500,), float(spent))
    drift = overshoot(AdditionRelaxation(bonus=1.0).relaxed_mass(window), window.p)
    return window, drift


def test_no_pass_can_spend_more_than_is_left():
    for spent, budget in ((0.0, 0.3), (0.25, 0.3), (0.3, 0.3), (0.4, 0.3)):
        window, drift = a_window(spent=spent)
        gate = ImageBudget(budget, urgency=0.0).gate(window, drift)
        assert ((gate >= 0) & (gate <= 1)).all()
        assert (gate * drift).sum(1).max() <= max(budget - spent, 0) + 1e-6
        if spent < budget:
            assert (gate * drift).sum(1).min() > budget - spent - 1e-5  # there is more to relax than the budget


def test_early_drafts_come_first_and_long_runs_outbid_short_ones():
    window, drift = a_window()
    gate = ImageBudget(0.2, urgency=0.0).gate(window, drift)
    assert (gate.diff(dim=1) <= 1e-6)[(drift > 1e-3)[:, 1:] & (drift > 1e-3)[:, :-1]].all()
    window, drift = a_window(start=8, spent=0.5)  # a quarter of the budget ahead of the picture: price e ** (8 * .375)
    picky = ImageBudget(1.0, urgency=2.0).gate(window, drift)
    worth = run_lengths(window.vanilla)
    price = torch.tensor(2.0 * (0.5 - 8 / 64)).exp()
    assert (picky[(worth < price) & (drift > 0)] == 0).all() and (picky[worth >= price] > 0).any()


def test_sharp_laws_are_held_back():
    window, drift = a_window()
    gate = ImageBudget(50.0, detail=1e6).gate(window, drift)  # every law is sharp against that
    assert (gate[drift > 0] == 0).all()
    assert (ImageBudget(50.0, detail=1e-6).gate(window, drift)[drift > 0] == 1).all()


@pytest.mark.parametrize("name", ["addition", "amplify", "entropy", "annealed", "ensemble", "grouped"])
@pytest.mark.parametrize("redraw", ["fresh", "coupled", "gumbel"])
def test_an_image_never_spends_more_than_its_budget(name, redraw):
    model, rule = ToyTarget(4, 3, 3, scale=2.0), RELAXATIONS[name](relax_fresh=True)
    filters = (ImageBudget(0.5), ImageBudget(0.5) & DriftBudget(0.2), DriftBudget(0.2) & ImageBudget(0.5))
    for alignment_filter in filters:
        traces = run_toy(
            model, JacobiDrafter(5, redraw), range(200), relaxation=rule, alignment_filter=alignment_filter
        ).traces
        spent = torch.tensor([trace.drift for trace in traces])
        assert spent.max() <= 0.5 + 1e-5 and spent.mean() > 0.05


def test_what_the_ledger_says_is_what_the_trace_reports():
    """With a budget nobody reaches the filter is always open: the same pictures as without it."""
    model, rule = ToyTarget(4, 3, 3, scale=2.0), AdditionRelaxation(bonus=0.3)
    drafter = JacobiDrafter(5, "coupled")
    bare = run_toy(model, drafter, range(100), relaxation=rule)
    held = run_toy(model, drafter, range(100), relaxation=rule, alignment_filter=ImageBudget(1e6, urgency=0.0))
    assert torch.equal(bare.tokens, held.tokens)
    assert [t.drift for t in bare.traces] == pytest.approx([t.drift for t in held.traces], abs=1e-5)


def test_budget_zero_is_exact():
    assert ImageBudget(0.0).always_closed and not ImageBudget(1e-6).always_closed
    p, q = random_laws(50, 6, seed=3), random_laws(50, 6, seed=4)
    assert (emitted(p, q, AdditionRelaxation(bonus=1.0), ImageBudget(0.0))[2] == 0).all()


@pytest.mark.parametrize("knob", ["budget", "urgency", "detail"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "much"])
def test_bad_knobs_are_refused(knob, value):
    with pytest.raises(ValueError, match=f"{knob} must be a number >= 0"):
        ImageBudget(**{knob: value})
