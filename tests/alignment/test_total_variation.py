import math

import pytest
import torch
from helpers import T3_P, T3_Q, emitted, every_symbol, random_laws, tv

from csd_pipeline.alignment import TVFilter
from csd_pipeline.relaxation import EntropyRelaxation

P, Q = random_laws(1000, 8, seed=1), random_laws(1000, 8, seed=2)


def gates(p, q, delta):
    window = every_symbol(p, q)
    return TVFilter(delta).gate(window, torch.zeros(window.drafts.shape)).view(len(p), -1)[:, 0]


def test_the_threshold_is_strict():
    p, q = [(0.75, 0.25)], [(0.25, 0.75)]  # distance exactly 1/2
    assert gates(p, q, 0.5) == 0 and gates(p, q, 0.5 + 1e-6) == 1
    assert gates([T3_P], [T3_Q], 0.40) == 0 and gates([T3_P], [T3_Q], 0.35) == 0 and gates([T3_P], [T3_Q], 0.41) == 1


def test_gate_opens_below_delta_only():
    distance = tv(P, Q)
    for delta in (0.0, 0.2, 0.5, 1.0):
        assert torch.equal(gates(P, Q, delta), (distance < delta).float())


def test_acceptance_does_not_fall_with_delta():
    before = emitted(P, Q, EntropyRelaxation(0.5), TVFilter(0.0))[0]
    for delta in (0.1, 0.3, 0.5, 0.8, 1.0):
        acceptance = emitted(P, Q, EntropyRelaxation(0.5), TVFilter(delta))[0]
        assert (acceptance >= before).all() and (acceptance > before).any()
        before = acceptance


def test_delta_zero_never_opens():
    assert TVFilter(0.0).always_closed and TVFilter(0).always_closed and not TVFilter(0.1).always_closed
    assert gates(P, P, 0.0).max() == 0


@pytest.mark.parametrize("delta", [-0.1, 1.1, math.nan, "0.5", None])
def test_bad_delta_is_refused(delta):
    with pytest.raises(ValueError, match=rf"delta must be between 0 and 1, got {delta!r}"):
        TVFilter(delta)
