import math

import pytest
from helpers import T3_P, T3_Q, emitted, random_laws, tv

from csd_pipeline.relaxation import AdditionRelaxation


def test_three_symbol_example():
    acceptance, law, drift = emitted([T3_P], [T3_Q], AdditionRelaxation(0.1))
    assert acceptance[0].tolist() == pytest.approx([1, 1, 0.433333], abs=1e-6)
    assert law[0].tolist() == pytest.approx([0.455, 0.285, 0.26], abs=1e-6)
    assert drift.item() == pytest.approx(0.06, abs=1e-6)


def test_support_leak_and_its_guard():
    p, q = (0.6, 0.4, 0.0), (0.5, 0.3, 0.2)
    acceptance, law, _ = emitted([p], [q], AdditionRelaxation(0.1, support_guard=False))
    assert acceptance[0, 2].item() == pytest.approx(0.1, abs=1e-6)
    assert law[0, 2].item() == pytest.approx(0.02, abs=1e-6)
    acceptance, law, _ = emitted([p], [q], AdditionRelaxation(0.1))
    assert acceptance[0, 2] == 0 and law[0, 2] == 0


@pytest.mark.parametrize("bonus", [0.05, 0.4, 1.0])
def test_drift_is_at_most_the_bonus_and_the_distance_of_the_laws(bonus):
    p, q = random_laws(500, 8, seed=1), random_laws(500, 8, seed=2)
    drift = emitted(p, q, AdditionRelaxation(bonus, support_guard=False))[2]
    assert (drift <= tv(p, q).clamp(max=bonus) + 1e-6).all()
    if bonus == 1:  # every draft is accepted
        assert (drift - tv(p, q)).abs().max() < 1e-6


def test_bonus_zero_is_exact():
    assert AdditionRelaxation(0.0).exact and not AdditionRelaxation(1e-3).exact


@pytest.mark.parametrize("bonus", [-0.1, math.nan, math.inf, "0.5", None, True])
def test_bad_bonus_is_refused(bonus):
    with pytest.raises(ValueError, match=rf"bonus must be a number >= 0, got {bonus!r}"):
        AdditionRelaxation(bonus)
