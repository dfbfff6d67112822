import math

import pytest
import torch
from helpers import T3_P, T3_Q, emitted, random_laws, tv

from csd_pipeline.alignment import TVFilter
from csd_pipeline.relaxation import EntropyRelaxation

# Two positions over two symbols: target and draft laws of the first, then of the second after 0 and after 1.
FIRST = ((0.6, 0.4), (0.3, 0.7))
SECOND = (((0.7, 0.3), (0.2, 0.8)), ((0.4, 0.6), (0.5, 0.5)))
P, Q = random_laws(1000, 8, seed=1), random_laws(1000, 8, seed=2)


def test_three_symbol_example():
    acceptance, law, drift = emitted([T3_P], [T3_Q], EntropyRelaxation(0.5), TVFilter(0.65))
    assert acceptance[0].tolist() == pytest.approx([1, 1, 1 / 3 + 0.514827], abs=1e-6)
    assert acceptance[0, 2].item() == pytest.approx(0.848160, abs=1e-6)
    accepted = (torch.tensor(T3_Q) * acceptance[0]).sum().item()
    assert accepted == pytest.approx(0.908896, abs=1e-6) and 1 - accepted == pytest.approx(0.091104, abs=1e-6)
    assert law[0].tolist() == pytest.approx([0.268328, 0.222776, 0.508896], abs=1e-6)
    assert drift.item() == pytest.approx(0.308896, abs=1e-6)
    assert tv(law, torch.tensor([T3_P])).item() == pytest.approx(0.308896, abs=1e-6)


def test_three_symbol_example_outside_the_filter_is_exact():
    acceptance, law, drift = emitted([T3_P], [T3_Q], EntropyRelaxation(0.5), TVFilter(0.35))
    assert acceptance[0, 2].item() == pytest.approx(1 / 3, abs=1e-6)
    assert law[0].tolist() == pytest.approx(T3_P, abs=1e-6) and drift == 0


@pytest.mark.parametrize(
    ("p", "expected"),
    [((0.9, 0.05, 0.05), 0.083333), ((0.7, 0.2, 0.1), 0.567576), (T3_P, 0.848160), ((0.4, 0.3, 0.3), 1.0)],
)
def test_acceptance_grows_with_entropy(p, expected):
    acceptance, _, _ = emitted([p], [T3_Q], EntropyRelaxation(0.5), TVFilter(0.65))
    assert acceptance[0, 2].item() == pytest.approx(expected, abs=1e-5)


def test_support_leak_and_its_guard():
    p, q = (0.6, 0.4, 0.0), (0.5, 0.3, 0.2)
    acceptance, law, _ = emitted([p], [q], EntropyRelaxation(0.5, support_guard=False), TVFilter(0.65))
    assert acceptance[0].tolist() == pytest.approx([1, 1, 0.336506], abs=1e-6)
    assert law[0, 2].item() == pytest.approx(0.067301, abs=1e-6)
    acceptance, law, _ = emitted([p], [q], EntropyRelaxation(0.5), TVFilter(0.65))
    assert acceptance[0, 2] == 0 and law[0, 2] == 0


@pytest.mark.parametrize(
    ("lam", "delta", "tokens", "distance", "bound"),
    [(0.5, 0.65, 2.724928, 0.235554, 0.370040), (0.1, 0.65, 2.292271, 0.047111, 0.069293), (0.5, 0.25, 2.19, 0, 0)],
)
def test_two_position_example(lam, delta, tokens, distance, bound):
    rule, alignment_filter = EntropyRelaxation(lam), TVFilter(delta)
    f1, law1, drift1 = (v[0] for v in emitted([FIRST[0]], [FIRST[1]], rule, alignment_filter))
    f2, law2, drift2 = emitted(SECOND[0], SECOND[1], rule, alignment_filter)
    p1, q1 = torch.tensor(FIRST, dtype=torch.float64)
    p2, q2 = torch.tensor(SECOND, dtype=torch.float64)
    accepted1 = q1 * f1
    assert 1 + (accepted1 * (1 + (q2 * f2).sum(1))).sum().item() == pytest.approx(tokens, abs=1e-6)
    joint = accepted1[:, None] * law2 + (law1 - accepted1)[:, None] * p2
    assert joint.sum().item() == pytest.approx(1, abs=1e-6)
    assert tv(joint.flatten(), (p1[:, None] * p2).flatten()).item() == pytest.approx(distance, abs=1e-6)
    assert (drift1 + (accepted1 * drift2).sum()).item() == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("lam", [0.05, 0.5, 4.0])
def test_drift_is_at_most_the_bonus_and_the_distance_of_the_laws(lam):
    _, law, drift = emitted(P, Q, EntropyRelaxation(lam))
    bonus = lam * -torch.special.xlogy(P, P).sum(1).double()
    assert (drift <= torch.minimum(bonus, tv(P, Q)) + 1e-6).all()
    _, law, drift = emitted(P, Q, EntropyRelaxation(lam), TVFilter(0.3))
    assert (drift < 0.3).all() and (drift > 0).any()


def test_acceptance_does_not_fall_with_lam():
    before = None
    for lam in (0.0, 0.01, 0.1, 0.5, 2.0, 50.0):
        acceptance, _, drift = emitted(P, Q, EntropyRelaxation(lam))
        if before is not None:
            assert (acceptance >= before[0]).all() and (drift >= before[1] - 1e-6).all()
            assert (acceptance > before[0]).any()
        before = acceptance, drift


def test_flat_targets_are_accepted_unseen():
    p, q = torch.full((1, 12), 1 / 12), random_laws(1, 12, zeros=0)  # entropy 2.48 > 1/lam
    assert (emitted(p, q, EntropyRelaxation(0.5))[0] == 1).all()


def test_fresh_uniform_drafts_are_relaxed_only_on_request():
    p, q = random_laws(1, 12, zeros=0), torch.full((1, 12), 1 / 12)
    plain = (p * 12).clamp(max=1).double()
    assert (emitted(p, q, EntropyRelaxation(5.0), fresh=True)[0] - plain).abs().max() < 1e-6
    assert (emitted(p, q, EntropyRelaxation(5.0, relax_fresh=True), fresh=True)[0] == 1).all()


def test_lam_zero_is_exact():
    assert EntropyRelaxation(0.0).exact and EntropyRelaxation(0).exact and not EntropyRelaxation(1e-3).exact


@pytest.mark.parametrize("lam", [-0.1, math.nan, math.inf, "0.5", None, True])
def test_bad_lam_is_refused(lam):
    with pytest.raises(ValueError, match=rf"lam must be a number >= 0, got {lam!r}"):
        EntropyRelaxation(lam)
