import math

import pytest
import torch
from helpers import emitted, every_symbol, random_laws, tv

from csd_pipeline.alignment import DriftBudget
from csd_pipeline.relaxation import EntropyRelaxation

P, Q = random_laws(1000, 8, seed=1), random_laws(1000, 8, seed=2)


def test_gate_spends_exactly_the_budget_where_the_rule_would_spend_more():
    rule = EntropyRelaxation(0.5)
    wanted = emitted(P, Q, rule)[2]
    for budget in (0.01, 0.1, 0.4):
        _, law, drift = emitted(P, Q, rule, DriftBudget(budget))
        assert (drift - wanted.clamp(max=budget)).abs().max() < 1e-6
        assert tv(law, P).max() <= budget + 1e-6


def test_acceptance_does_not_fall_with_the_budget():
    before = emitted(P, Q, EntropyRelaxation(0.5), DriftBudget(0.0))[0]
    for budget in (0.01, 0.1, 0.3, 1.0):
        acceptance = emitted(P, Q, EntropyRelaxation(0.5), DriftBudget(budget))[0]
        assert (acceptance >= before - 1e-6).all() and (acceptance > before).any()
        before = acceptance
    assert torch.equal(before, emitted(P, Q, EntropyRelaxation(0.5))[0])


def test_gate_is_a_number_whatever_budget_and_drift():
    window = every_symbol(P[:1], Q[:1])
    drift = torch.tensor([0.0, 1e-30, 0.1, 0.5, 1.0, 0.0, 0.2, 0.3])[:, None]
    for budget in (0.0, 1e-30, 0.2, 1.0):
        gate = DriftBudget(budget).gate(window, drift)
        assert ((gate >= 0) & (gate <= 1)).all() and (gate * drift <= budget + 1e-6).all()


def test_budget_zero_never_opens():
    assert DriftBudget(0.0).always_closed and not DriftBudget(0.01).always_closed


@pytest.mark.parametrize("budget", [-0.1, 1.5, math.nan, "all"])
def test_bad_budget_is_refused(budget):
    with pytest.raises(ValueError, match=rf"budget must be between 0 and 1, got {budget!r}"):
        DriftBudget(budget)
