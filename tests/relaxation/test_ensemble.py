import math

import pytest
import torch
from helpers import T3_P, T3_Q, emitted, random_laws, tv

from csd_pipeline.relaxation import EnsembleRelaxation

P, Q = random_laws(500, 8, seed=1), random_laws(500, 8, seed=2)


def test_three_symbol_example():
    acceptance, law, drift = emitted([T3_P], [T3_Q], EnsembleRelaxation(0.25))
    assert acceptance[0].tolist() == pytest.approx([1, 1, 0.5], abs=1e-6)
    assert law[0].tolist() == pytest.approx([0.425, 0.275, 0.3], abs=1e-6)
    assert drift.item() == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9, 1.0])
def test_the_emitted_law_is_the_mixture(weight):
    _, law, drift = emitted(P, Q, EnsembleRelaxation(weight, support_guard=False))
    assert (law - ((1 - weight) * P + weight * Q)).abs().max() < 1e-6
    assert (drift - weight * tv(P, Q)).abs().max() < 1e-6


def test_the_guard_only_ever_takes_away_impossible_tokens():
    guarded, free = (emitted(P, Q, EnsembleRelaxation(0.4, support_guard=guard))[0] for guard in (True, False))
    assert (guarded[(P == 0) & (Q > 0)] == 0).all() and (free[(P == 0) & (Q > 0)] > 0.39).all()
    assert torch.equal(guarded[P > 0], free[P > 0])


def test_weight_zero_is_exact():
    assert EnsembleRelaxation(0).exact and not EnsembleRelaxation(1e-3).exact


@pytest.mark.parametrize("weight", [-0.1, 1.01, math.nan, "0.5", None, True])
def test_bad_weight_is_refused(weight):
    with pytest.raises(ValueError, match=rf"weight must be between 0 and 1, got {weight!r}"):
        EnsembleRelaxation(weight)
