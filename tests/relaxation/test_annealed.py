import math

import numpy as np
import pytest
import torch
from helpers import T3_P, T3_Q, emitted, law_p_value, random_laws, run_toy, seeds_from, two_position_figures, window_of
from helpers_enumeration import jacobi_law

from csd_pipeline.decoding import Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import AnnealedRelaxation
from csd_pipeline.targets.toy import ToyTarget

P, Q = random_laws(500, 8, seed=1), random_laws(500, 8, seed=2)


def published(*args, **knobs):
    return AnnealedRelaxation(*args, min_omega=0.0, **knobs)


def omega(rule, lengths):
    laws = torch.full((len(lengths), max(lengths), 3), 1 / 3)
    return rule.omega(window_of(laws, laws, lengths=lengths))


@pytest.mark.parametrize(
    ("normaliser", "weights"),
    [
        ("mean", (2.595449, 1.288862, 0.640030, 0.317829, 0.157829)),
        ("mean", (2.144038, 1.064698, 0.528714, 0.262551)),
        ("mean", (1.720990, 0.854618, 0.424391)),
        ("geomean", (4.055200, 2.013753, 1.0, 0.496585, 0.246597)),
        ("first", (1.0, 0.496585, 0.246597)),
    ],
)
def test_factors_of_the_exponential_schedule(normaliser, weights):
    for delta in (1.0, 1.1, 2.0):
        found = omega(published(delta, normaliser=normaliser), [len(weights)])[0]
        assert (found / delta).tolist() == pytest.approx(weights, abs=1e-6)


def test_factors_of_the_linear_schedule():
    found = omega(published(1.5, schedule="linear"), [5])[0]
    assert found.tolist() == pytest.approx([1.5 * 2 * (6 - i) / 6 for i in range(1, 6)], abs=1e-6)


@pytest.mark.parametrize("schedule", ["exponential", "linear"])
def test_every_image_is_normalised_over_its_own_drafts(schedule):
    lengths = [0, 1, 2, 5, 9]
    found = omega(published(1.3, schedule=schedule), lengths)
    assert torch.isfinite(found).all()
    for row, length in zip(found, lengths, strict=True):
        assert (row[length:] == 1).all()
        if length:
            alone = omega(published(1.3, schedule=schedule), [length])[0]
            assert torch.equal(row[:length], alone) and alone.mean().item() == pytest.approx(1.3, abs=1e-6)
            assert (alone.diff() < 0).all()


def test_steep_decay_stays_finite():
    for normaliser in ("mean", "geomean", "first"):
        rule = published(4.0, nu=80.0, normaliser=normaliser)
        _, law, drift = emitted(P, Q, rule, slot=5, length=6)
        assert torch.isfinite(law).all() and torch.isfinite(drift).all()
        _, law, drift = emitted(P, Q, rule, slot=0, length=6)
        assert torch.isfinite(law).all() and (law[P == 0] == 0).all()


def test_below_one_the_position_is_exact_and_needs_the_general_residual():
    acceptance, law, drift = emitted([T3_P], [T3_Q], published(0.5, nu=0.0))
    assert acceptance[0].tolist() == pytest.approx([1, 0.75, 0.166667], abs=1e-6)
    p, q = torch.tensor(T3_P, dtype=torch.float64), torch.tensor(T3_Q, dtype=torch.float64)
    mass = q * acceptance[0]
    assert mass.sum().item() == pytest.approx(0.45, abs=1e-6) and drift == 0
    rest = (law[0] - mass) / (law[0] - mass).sum()
    assert rest.tolist() == pytest.approx([0.545455, 0.272727, 0.181818], abs=1e-6)
    assert law[0].tolist() == pytest.approx(T3_P, abs=1e-6)
    plain = (p - q).clamp(min=0)
    spoiled = mass + (1 - mass.sum()) * plain / plain.sum()  # what the plain residual would emit
    assert spoiled.tolist() == pytest.approx([0.6125, 0.2875, 0.1], abs=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "tokens", "distance", "bound"),
    [(1.0, 1.0, 2.19, 0, 0), (2.0, 1.0, 2.7, 0.3, 0.3), (1.5, 0.5, 2.35, 0.2, 0.2), (1.2, 1.2, 2.3632, 0.08, 0.1172)],
)
def test_two_position_examples(first, second, tokens, distance, bound):
    rule = published(first, nu=math.log(first / second), normaliser="first")
    assert two_position_figures(rule) == pytest.approx((tokens, distance, bound), abs=1e-6)


def test_lifting_late_factors_to_one_costs_no_drift():
    gained = False
    for slot in range(5):
        paper, lifted = (
            emitted(P, Q, AnnealedRelaxation(1.5, min_omega=low), slot=slot, length=5) for low in (0.0, 1.0)
        )
        assert torch.equal(paper[2], lifted[2]) and (lifted[0] >= paper[0]).all()
        gained |= bool((lifted[0] > paper[0] + 0.1).any())
    assert gained


@pytest.mark.parametrize(
    ("knobs", "exact", "plain"),
    [
        ({"delta": 1.0, "nu": 0.0}, True, True),
        ({"delta": 1.0, "nu": 0.0, "min_omega": 0.0}, True, True),
        ({"delta": 0.9, "nu": 0.0, "min_omega": 0.0}, True, False),
        ({"delta": 1.0, "normaliser": "first", "min_omega": 0.0}, True, False),
        ({"delta": 1.0, "normaliser": "first"}, True, True),
        ({"delta": 1.0}, False, False),
        ({"delta": 0.5, "schedule": "linear", "min_omega": 0.0}, True, False),
        ({"delta": 0.6, "schedule": "linear", "min_omega": 0.0}, False, False),
        ({"delta": 0.36, "schedule": "linear", "normaliser": "geomean"}, True, True),
        ({"delta": 0.4, "schedule": "linear", "normaliser": "geomean"}, False, False),
        ({"delta": 0.5, "normaliser": "first", "min_omega": 1.1}, False, False),
    ],
)
def test_exact_means_no_factor_above_one_in_any_window(knobs, exact, plain):
    rule = AnnealedRelaxation(**knobs)
    assert (rule.exact, rule.plain) == (exact, plain)
    largest = max(omega(rule, [length]).max().item() for length in (1, 2, 5, 40, 400))
    assert (largest <= 1 + 1e-6) == exact


MODEL = ToyTarget(2, 1, 5, scale=1.5, seed=3)  # 32 sequences
COUNT = 20_000


@pytest.mark.parametrize("redraw", ["fresh", "coupled", "gumbel"])
def test_factors_up_to_one_sample_the_target_law(redraw):
    rule = published(0.9, nu=0.3, normaliser="first")
    result = run_toy(MODEL, JacobiDrafter(4, redraw), seeds_from(3, COUNT), relaxation=rule)
    assert law_p_value(result.tokens, MODEL.enumerate_law(Warp())) > 1e-3
    assert all(trace.drift == 0 for trace in result.traces)


@pytest.mark.parametrize("schedule", ["exponential", "linear"])
def test_a_whole_decode_has_the_enumerated_law(schedule):
    def mass(p, q, fresh, slot, drafts):
        weight = np.exp(-0.7 * np.arange(drafts)) if schedule == "exponential" else drafts - np.arange(drafts)
        return np.minimum(q, 2.0 * weight[slot] / weight.mean() * p)

    rule = published(2.0, schedule=schedule, relax_fresh=True)
    tokens = run_toy(MODEL, JacobiDrafter(4, "fresh", "uniform"), seeds_from(3, COUNT), relaxation=rule).tokens
    assert law_p_value(tokens, jacobi_law(MODEL, 4, mass)) > 1e-3
    assert law_p_value(tokens, MODEL.enumerate_law(Warp())) < 1e-6


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"delta": 0}, "delta must be a number > 0, got 0"),
        ({"delta": math.inf}, "delta must be a number > 0, got inf"),
        ({"nu": -0.1}, "nu must be a number >= 0, got -0.1"),
        ({"min_omega": -1}, "min_omega must be a number >= 0, got -1"),
        ({"schedule": "exponental"}, "did you mean 'exponential'"),
        ({"normaliser": "mode"}, "unknown normaliser 'mode'"),
    ],
)
def test_bad_knobs_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        AnnealedRelaxation(**knobs)
