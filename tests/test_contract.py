"""What every registered relaxation rule and alignment filter must keep, alone and combined."""

import itertools

import pytest
import torch
from helpers import (
    OperatorLog,
    ScriptedNoise,
    draws_from,
    emitted,
    every_symbol,
    noise_of,
    random_laws,
    rule_of,
    run_toy,
    tv,
    window_of,
)

from csd_pipeline.alignment import FILTERS, AlignmentFilter, CombinedFilter, DriftBudget
from csd_pipeline.decoding import Purpose
from csd_pipeline.decoding.verification import decide_each, verify
from csd_pipeline.drafters import DRAFTERS
from csd_pipeline.relaxation import RELAXATIONS, Exact, Relaxation
from csd_pipeline.relaxation.joint import JointRelaxation
from csd_pipeline.targets.toy import ToyTarget

FILTER_SETS = {
    "none": None,
    **{name: cls() for name, cls in FILTERS.items()},
    **{f"{a}&{b}": FILTERS[a]() & FILTERS[b]() for a, b in itertools.combinations(FILTERS, 2)},
    "all": CombinedFilter.of(*(cls() for cls in FILTERS.values())),
}
RULES = {
    **{name: (name, {}) for name in RELAXATIONS},
    "annealed as published": ("annealed", {"delta": 2.0, "min_omega": 0.0}),
    "annealed and exact": ("annealed", {"delta": 0.9, "normaliser": "first", "min_omega": 0.0}),
    "blocks of two": ("block", {"length": 2}),
}
# Values of the knob named by ``strength``, in rising order.
STRENGTHS = {
    "entropy": (0.0, 0.1, 0.5, 2.0),
    "amplify": (1.0, 1.1, 1.5, 4.0),
    "addition": (0.0, 0.1, 0.4, 1.0),
    "annealed": (0.1, 0.5, 1.0, 1.1, 2.0, 9.0),
    "ensemble": (0.0, 0.1, 0.5, 1.0),
    "neighbour": (0.0, 0.5, 1.0, 3.0),
}
every_rule = pytest.mark.parametrize("name", RULES)
every_filter = pytest.mark.parametrize("filters", FILTER_SETS)

P, Q = random_laws(300, 7, seed=1), random_laws(300, 7, seed=2)
P[:20] = Q[:20]  # equal laws
P[20:40], Q[20:40] = torch.eye(7)[2], torch.eye(7)[3]  # nothing in common
P[40:60] = torch.eye(7)[4]  # no entropy
P, Q = torch.cat([P, P[60:]]), torch.cat([Q, 0.8 * P[60:] + 0.2 * Q[60:]])  # close enough for any filter


def made(rule: str, vocabulary: int = 7, **knobs):
    name, own = RULES[rule]
    return rule_of(name, vocabulary, **own, **knobs)


def plain_acceptance() -> torch.Tensor:
    return emitted(P, Q, Exact())[0]


class Closed(AlignmentFilter):
    """Gate 0 everywhere, without saying so beforehand."""

    def gate(self, window, drift):
        return torch.zeros_like(drift)


class Open(AlignmentFilter):
    def gate(self, window, drift):
        return torch.ones_like(drift)


@every_rule
@every_filter
def test_acceptance_is_a_probability_and_the_emitted_law_a_law(name, filters):
    acceptance, law, drift = emitted(P, Q, made(name), FILTER_SETS[filters])
    assert torch.isfinite(acceptance).all() and ((acceptance >= 0) & (acceptance <= 1)).all()
    assert torch.isfinite(drift).all() and (drift >= 0).all()
    assert (law >= 0).all() and (law.sum(1) - 1).abs().max() < 1e-6


@every_rule
@every_filter
def test_drift_is_the_distance_from_the_target_law(name, filters):
    rule = made(name)
    acceptance, law, drift = emitted(P, Q, rule, FILTER_SETS[filters])
    assert (tv(law, P) - drift).abs().max() < 1e-6
    alone = rule.exact or isinstance(rule, JointRelaxation)  # a draft that has no company is judged by the plain rule
    assert (drift.max() == 0) if alone else (drift.max() > 0.01)


@every_rule
@every_filter
def test_acceptance_gained_is_drift_spent(name, filters):
    rule = made(name)
    acceptance, _, drift = emitted(P, Q, rule, FILTER_SETS[filters])
    plain = plain_acceptance()
    gained = (Q * (acceptance - plain)).sum(1)
    assert (gained <= drift + 1e-6).all()
    if rule.dominates_vanilla:
        assert (acceptance >= plain)[Q > 0].all()
        assert (gained - drift).abs().max() < 1e-6
        assert (1 - (Q * acceptance).sum(1) + drift - tv(P, Q)).abs().max() < 1e-6


@every_rule
def test_declared_dominance_is_true(name):
    window, rule = random_window(5), made(name, 6)
    acceptance = verify(window, rule, None, *noise_of(window)).acceptance
    below = (acceptance < window.vanilla - 1e-6)[window.valid]
    assert not below.any() if rule.dominates_vanilla else below.any()


@every_rule
def test_plain_means_the_decisions_of_plain_decoding(name):
    window, rule = random_window(6), made(name, 6)
    uniform = noise_of(window)[0].uniform(window.positions, Purpose.VERIFY, 0)[:, :-1]
    own, plain = rule.decide(window, None, uniform), decide_each(window, uniform)
    assert torch.equal(own.accepted, plain.accepted) == rule.plain
    assert rule.exact or not rule.plain


@pytest.mark.parametrize("name", [name for name, cls in RELAXATIONS.items() if cls.strength])
@pytest.mark.parametrize("normaliser", ["mean", "first"])
def test_acceptance_never_falls_with_the_strength(name, normaliser):
    window, before = random_window(7), None
    knobs = {"normaliser": normaliser, "min_omega": 0.0} if name == "annealed" else {}
    for value in STRENGTHS[name]:
        rule = rule_of(name, 6, **{RELAXATIONS[name].strength: value}, **knobs)
        acceptance = verify(window, rule, None, *noise_of(window)).acceptance[window.valid]
        assert before is None or ((acceptance >= before - 1e-7).all() and (acceptance > before + 0.01).any())
        before = acceptance


@every_rule
@pytest.mark.parametrize("filters", ["none", "all"])
def test_operators_do_not_multiply_with_images_or_drafts(name, filters):
    rule, logs = made(name, 6), []
    for images, length in ((1, 4), (2, 5), (7, 9)):
        laws = random_laws(2 * images * length, 6).view(2, images, length, 6)
        drafts = draws_from(laws[1])
        for _ in range(2):  # index tensors are made in the first pass and kept
            window = window_of(*laws, drafts)
            with OperatorLog() as log:
                verify(window, rule, FILTER_SETS[filters], ScriptedNoise(VERIFY=0.5, RESIDUAL=0.5), 0)
        logs.append(log)
    assert logs[1].names == logs[2].names and len(logs[0].names) <= len(logs[1].names)  # one image needs no offsets
    assert not any(log.host_reads for log in logs)


@every_rule
@pytest.mark.parametrize("redraw", ["fresh", "coupled", "gumbel"])
def test_images_of_a_batch_equal_their_single_runs(name, redraw):
    model = ToyTarget(4, 3, 3, scale=2.0)
    drafter, rule = DRAFTERS["jacobi"](window=5, redraw=redraw), made(name, 4)
    together = run_toy(model, drafter, range(6), relaxation=rule)
    assert len({trace.nfe for trace in together.traces}) > 1
    for seed in range(6):
        alone = run_toy(model, drafter, [seed], relaxation=rule)
        assert torch.equal(alone.tokens[0], together.tokens[seed])
        assert alone.traces[0].drift == pytest.approx(together.traces[seed].drift, abs=1e-6)


@every_rule
@every_filter
def test_support_never_grows(name, filters):
    acceptance, law, _ = emitted(P, Q, made(name), FILTER_SETS[filters])
    assert (law[P == 0] == 0).all() and (acceptance[(P == 0) & (Q > 0)] == 0).all()


@every_rule
def test_fresh_drafts_stay_exact_unless_asked(name):
    rule = made(name)
    assert rule.config.relax_fresh is False
    assert torch.equal(emitted(P, Q, rule, fresh=True)[0], plain_acceptance())
    eager = made(name, relax_fresh=True)
    assert torch.equal(emitted(P, Q, eager, fresh=True)[0], emitted(P, Q, eager)[0])


def random_window(seed):
    laws = [random_laws(2000, 6, seed=seed + i).view(500, 4, 6) for i in range(2)]
    q = 0.7 * laws[0] + 0.3 * laws[1]
    return window_of(laws[0], q, draws_from(q), lengths=torch.arange(500) % 5)


@every_rule
def test_gate_zero_is_exact_bit_for_bit(name):
    window = random_window(3)
    exact = verify(window, Exact(), None, *noise_of(window))
    closed = verify(window, made(name, 6), Closed(), *noise_of(window))
    assert torch.equal(closed.accepted, exact.accepted) and torch.equal(closed.next_token, exact.next_token)
    assert torch.equal(closed.acceptance, exact.acceptance)
    assert (closed.drift == 0).all()


@every_rule
def test_gate_one_is_the_rule_itself(name):
    window, rule = random_window(4), made(name, 6)
    bare, opened = (verify(window, rule, f, *noise_of(window)) for f in (None, Open()))
    assert torch.equal(bare.accepted, opened.accepted) and torch.equal(bare.next_token, opened.next_token)
    assert torch.equal(bare.acceptance, opened.acceptance) and torch.equal(bare.drift, opened.drift)


@every_filter
def test_gates_are_in_range_and_combinations_take_the_smallest(filters):
    alignment_filter = FILTER_SETS[filters]
    if alignment_filter is None:
        return
    window = every_symbol(P, Q, length=3)
    drift = torch.rand(window.drafts.shape) * (torch.rand(window.drafts.shape) < 0.8)
    gate = alignment_filter.gate(window, drift)
    assert gate.shape == drift.shape and gate.dtype == torch.float32 and ((gate >= 0) & (gate <= 1)).all()
    names = FILTERS if filters == "all" else filters.split("&")
    smallest = torch.stack([FILTERS[n]().gate(window, drift) for n in names]).amin(0)
    assert torch.equal(gate, smallest) and 0 < gate.mean() < 1


@every_rule
@pytest.mark.parametrize("budget", [1e-3, 0.05, 0.3])
def test_a_budget_is_never_overdrawn(name, budget):
    _, law, drift = emitted(P, Q, made(name, relax_fresh=True), DriftBudget(budget))
    assert drift.max() <= budget + 1e-6 and tv(law, P).max() <= budget + 1e-6


@every_rule
@pytest.mark.parametrize("redraw", ["fresh", "coupled", "gumbel"])
def test_a_budget_holds_over_a_whole_decode(name, redraw):
    model = ToyTarget(4, 3, 3, scale=2.0)
    drafter = DRAFTERS["jacobi"](window=5, redraw=redraw)
    rule = made(name, 4)
    result = run_toy(model, drafter, range(300), relaxation=rule, alignment_filter=DriftBudget(0.08), maps=True)
    drift = torch.stack([trace.maps["drift"] for trace in result.traces])
    assert drift.max() <= 0.08 + 1e-6 and drift.min() >= 0
    assert (drift.max() == 0) if rule.exact else (drift.max() > 0.079)
    totals = drift.double().flatten(1).sum(1)
    assert [trace.drift for trace in result.traces] == pytest.approx(totals.tolist(), abs=1e-6)


PARTS = [cls() for registry in (RELAXATIONS, FILTERS, DRAFTERS) for cls in registry.values()]
PARTS += [f for f in FILTER_SETS.values() if isinstance(f, CombinedFilter)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_config_survives_saving(part, tmp_path):
    changed = type(part)(**{**public(part), **{k: v for k, v in NEW_VALUES.items() if k in part.config}})
    changed.save_pretrained(tmp_path)
    loaded = type(part).from_pretrained(tmp_path)
    assert type(loaded) is type(part) and public(loaded) == public(changed)
    assert isinstance(part, (Exact, CombinedFilter)) or public(loaded) != public(part)


NEW_VALUES = {
    "lam": 0.125,
    "delta": 0.3,
    "budget": 0.03,
    "direction": "reverse",
    "window": 7,
    "redraw": "fresh",
    "factor": 2.0,
    "bonus": 0.3,
    "weight": 0.6,
    "length": 2,
    "nu": 0.2,
    "schedule": "linear",
    "floor": 0.5,
    "normaliser": "geomean",
    "size": 3,
    "alpha": 0.5,
    "max_len": 2,
}


def public(part) -> dict:
    return {k: v for k, v in part.config.items() if not k.startswith("_")}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_parts_name_their_source_or_combine_others_that_do(part):
    assert part.source or isinstance(part, CombinedFilter)
    assert not isinstance(part, Relaxation) or part.departures.endswith(".")
