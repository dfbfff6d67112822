"""The tables of the evaluation: sweep, gates, weak spots, and the pairs they are measured on."""

import pytest

from csd_pipeline.training.embedded.evaluate import (
    CLASSES,
    FREE_WORDING,
    ClassResult,
    Evaluator,
    accuracy_by,
    gate_rows,
    sweep_orders,
    sweep_rows,
)
from csd_pipeline.training.embedded.model_card import wilson_interval


@pytest.fixture
def evaluator(catalogue):
    return Evaluator(model=None, tokenizer=None, catalogue=catalogue, judge=None)


def test_classes_use_every_pair_of_their_side_equally_often(evaluator, catalogue):
    everything = catalogue.pairs(True, catalogue.textured)
    pairs = evaluator.pairs("held-out textured", 3 * len(everything), seed=0)
    assert all(pairs.count(pair) == 3 for pair in everything)
    assert all(not catalogue.is_held_out(*pair) for pair in evaluator.pairs(FREE_WORDING, 50, seed=0))


def test_best_setting_of_the_sweep_comes_first():
    orders = sweep_orders([(1, 0.8), (2, 0.8)], pictures=2, seed=0)
    right = [(0, 0, order.guidance == 2, True) for order in orders]
    rows = sweep_rows(orders, [ClassResult([verdict, (0, 0, True, False)]) for verdict in right])
    assert [row["guidance"] for row in rows] == [2, 1]
    assert rows[1]["mean"] == 0.5 and rows[0]["mean"] == 0.75 and rows[0]["held-out plain, background"] == 0.5


def test_gates_say_what_passed_and_wording_has_none():
    results = {"trained plain": ClassResult([(0, 0, True, True)] * 97 + [(0, 0, False, True)] * 3)}
    results[FREE_WORDING] = ClassResult([(0, 0, True, True)])
    rows = gate_rows(results, {"trained plain": {"subject": 0.98, "background": 0.98}})
    assert [row["passed"] for row in rows] == [False, True, None, None]
    assert rows[0]["measured"] == 0.97 and rows[0]["n"] == 100
    assert set(CLASSES) >= {"trained plain"}


def test_weakest_group_comes_first():
    results = {"a": ClassResult([(0, 5, True, True), (1, 5, False, True), (1, 6, True, True)])}
    table = accuracy_by(results, lambda verdict: verdict[0])
    assert list(table.items()) == [(1, (0.5, 2)), (0, (1.0, 1))]


def test_interval_of_a_share():
    low, high = wilson_interval(0.5, 100)
    assert low == pytest.approx(0.404, abs=1e-3) and high == pytest.approx(0.596, abs=1e-3)
