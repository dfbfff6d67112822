import math

import pytest
import torch
from helpers import emitted, random_laws, window_of

from csd_pipeline.alignment import AnnealingFilter, DriftBudget
from csd_pipeline.relaxation import AnnealedRelaxation, EntropyRelaxation

P, Q = random_laws(500, 8, seed=1), random_laws(500, 8, seed=2)


def gates(alignment_filter, lengths):
    laws = torch.full((len(lengths), max(lengths), 3), 1 / 3)
    window = window_of(laws, laws, lengths=lengths)
    return alignment_filter.gate(window, torch.zeros(window.drafts.shape))


def test_exponential_schedule():
    assert gates(AnnealingFilter(0.7), [3])[0].tolist() == pytest.approx([1, 0.496585, 0.246597], abs=1e-6)
    floored = gates(AnnealingFilter(0.7, floor=0.2), [3])[0]
    assert floored.tolist() == pytest.approx([1, 0.597268, 0.397278], abs=1e-6) and floored[0] == 1
    assert (gates(AnnealingFilter(0.0), [4]) == 1).all()


def test_linear_schedule_counts_the_drafts_of_each_image():
    found = gates(AnnealingFilter(schedule="linear"), [0, 2, 4])
    assert found[1, :2].tolist() == pytest.approx([1, 0.5]) and found[2].tolist() == pytest.approx([1, 0.75, 0.5, 0.25])
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("schedule", ["exponential", "linear"])
def test_drift_is_that_of_the_rule_times_the_gate(schedule):
    rule, anneal = EntropyRelaxation(0.5), AnnealingFilter(0.4, schedule, floor=0.1)
    whole = emitted(P, Q, rule)[2]
    gate = gates(anneal, [4])[0]
    for slot in range(4):
        _, law, drift = emitted(P, Q, rule, anneal, slot=slot, length=4)
        assert (drift - gate[slot] * whole).abs().max() < 1e-6
        assert (law[P == 0] == 0).all()


def test_an_exact_rule_stays_exact_and_a_budget_still_holds():
    strict = AnnealedRelaxation(0.8, nu=0.0, min_omega=0.0)
    _, law, drift = emitted(P, Q, strict, AnnealingFilter(), slot=2, length=3)
    assert (law - P).abs().max() < 1e-6 and (drift == 0).all()
    both = AnnealingFilter() & DriftBudget(0.05)
    drifts = [emitted(P, Q, EntropyRelaxation(0.5), both, slot=i, length=3)[2] for i in range(3)]
    assert all(drift.max() <= 0.05 + 1e-6 for drift in drifts) and drifts[2].sum() < drifts[0].sum()


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"nu": -1}, "nu must be a number >= 0, got -1"),
        ({"nu": math.nan}, "nu must be a number >= 0, got nan"),
        ({"floor": 1.1}, "floor must be between 0 and 1, got 1.1"),
        ({"schedule": "linaer"}, "did you mean 'linear'"),
    ],
)
def test_bad_knobs_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        AnnealingFilter(**knobs)
