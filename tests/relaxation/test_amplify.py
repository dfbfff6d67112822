import math

import pytest
import torch
from helpers import T3_P, T3_Q, emitted, random_laws, run_toy, two_position_figures

from csd_pipeline.relaxation import AmplifyRelaxation, AnnealedRelaxation
from csd_pipeline.targets.toy import ToyTarget


@pytest.mark.parametrize(
    ("factor", "third", "accepted", "law", "distance"),
    [(2.0, 0.666667, 0.8, (0.35, 0.25, 0.40), 0.2), (1.1, 0.366667, 0.62, (0.485, 0.295, 0.22), 0.02)],
)
def test_three_symbol_examples(factor, third, accepted, law, distance):
    acceptance, emitted_law, drift = emitted([T3_P], [T3_Q], AmplifyRelaxation(factor))
    assert acceptance[0].tolist() == pytest.approx([1, 1, third], abs=1e-6)
    assert (torch.tensor(T3_Q) * acceptance[0]).sum().item() == pytest.approx(accepted, abs=1e-6)
    assert emitted_law[0].tolist() == pytest.approx(law, abs=1e-6)
    assert drift.item() == pytest.approx(distance, abs=1e-6)


def test_two_position_example():
    assert two_position_figures(AmplifyRelaxation(1.2)) == pytest.approx((2.3632, 0.08, 0.1172), abs=1e-6)
    assert two_position_figures(AmplifyRelaxation(1.0)) == pytest.approx((2.19, 0, 0), abs=1e-6)


def test_impossible_tokens_stay_impossible_even_without_the_guard():
    p, q = random_laws(300, 6, seed=1), random_laws(300, 6, zeros=0, seed=2)
    acceptance, law, _ = emitted(p, q, AmplifyRelaxation(50.0, support_guard=False))
    assert (acceptance[p == 0] == 0).all() and (law[p == 0] == 0).all() and (p == 0).any()


def test_annealing_without_decay_is_the_same_rule():
    model = ToyTarget(4, 2, 3, scale=1.5)
    level = AnnealedRelaxation(1.7, nu=0.0)
    tokens = [run_toy(model, seeds=range(200), relaxation=rule).tokens for rule in (AmplifyRelaxation(1.7), level)]
    assert torch.equal(*tokens)


def test_factor_one_is_exact():
    assert AmplifyRelaxation(1.0).exact and AmplifyRelaxation(1).plain and not AmplifyRelaxation(1.001).exact


@pytest.mark.parametrize("factor", [0.99, 0, -1, math.nan, math.inf, "2", None, True])
def test_bad_factor_is_refused(factor):
    with pytest.raises(ValueError, match=rf"factor must be a number >= 1, got {factor!r}"):
        AmplifyRelaxation(factor)
