import math

import pytest
import torch
from helpers import T3_P, T3_Q, emitted, every_symbol, random_laws

from csd_pipeline.alignment import KLFilter
from csd_pipeline.relaxation import EntropyRelaxation

P, Q = random_laws(500, 8, seed=1), random_laws(500, 8, seed=2)
Q[:250] = 0.6 * P[:250] + 0.4 * Q[:250]


def gates(p, q, **knobs):
    window = every_symbol(p, q)
    return KLFilter(**knobs).gate(window, torch.zeros(window.drafts.shape)).view(len(p), -1)[:, 0]


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_gate_opens_below_the_divergence_in_nats(direction):
    a, b = (P, Q) if direction == "forward" else (Q, P)
    terms = torch.where(a > 0, a.double() * (a.double() / b).log(), 0.0)
    divergence = terms.sum(1)  # infinite where b lacks a token of a
    for delta in (0.02, 0.1, 0.4, 2.0):
        clear = (divergence - delta).abs() > 1e-5
        assert torch.equal(gates(P, Q, delta=delta, direction=direction)[clear], (divergence < delta).float()[clear])
    assert torch.isinf(divergence).any() and (divergence < 0.1).any()


def test_directions_differ_on_the_three_symbol_example():
    forward = sum(p * math.log(p / q) for p, q in zip(T3_P, T3_Q, strict=True))  # .3601
    reverse = sum(q * math.log(q / p) for p, q in zip(T3_P, T3_Q, strict=True))  # .3948
    between = (forward + reverse) / 2
    assert forward < between < reverse
    assert gates([T3_P], [T3_Q], delta=between) == 1 and gates([T3_P], [T3_Q], delta=between, direction="reverse") == 0


def test_acceptance_does_not_fall_with_delta():
    before = emitted(P, Q, EntropyRelaxation(0.3), KLFilter(0.0))[0]
    for delta in (0.05, 0.2, 1.0):
        acceptance = emitted(P, Q, EntropyRelaxation(0.3), KLFilter(delta))[0]
        assert (acceptance >= before).all() and (acceptance > before).any()
        before = acceptance


def test_delta_zero_never_opens():
    assert KLFilter(0.0).always_closed and not KLFilter(0.1).always_closed
    assert emitted(P, P, EntropyRelaxation(0.5), KLFilter(0.0))[2].max() == 0


@pytest.mark.parametrize("delta", [-1, math.nan, math.inf])
def test_bad_delta_is_refused(delta):
    with pytest.raises(ValueError, match=rf"delta must be a number >= 0, got {delta!r}"):
        KLFilter(delta)


def test_unknown_direction_offers_the_nearest():
    with pytest.raises(ValueError, match=r"unknown direction 'forwards' \(did you mean 'forward'\?\)"):
        KLFilter(direction="forwards")
