"""Rules that judge drafts one by one, against the enumerated law of a whole Jacobi decode."""

import numpy as np
import pytest
from helpers import SEED_BASES, law_p_value, run_toy, seeds_from
from helpers_enumeration import jacobi_law

from csd_pipeline.decoding import Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import AdditionRelaxation, AmplifyRelaxation, EnsembleRelaxation, EntropyRelaxation, Exact
from csd_pipeline.targets.toy import ToyTarget

MODEL = ToyTarget(2, 1, 5, scale=1.5, seed=3)  # 32 sequences
COUNT = 20_000


def plain(p, q):
    return np.minimum(p, q)


RULES = {
    "exact": (Exact(), plain),
    "entropy": (EntropyRelaxation(0.8, relax_fresh=True), lambda p, q: np.minimum(q, p - 0.8 * (p @ np.log(p)) * q)),
    "amplify": (AmplifyRelaxation(1.8, relax_fresh=True), lambda p, q: np.minimum(q, 1.8 * p)),
    "addition": (AdditionRelaxation(0.4, relax_fresh=True), lambda p, q: np.minimum(q, p + 0.4 * q)),
    "ensemble": (EnsembleRelaxation(0.6, relax_fresh=True), lambda p, q: np.minimum(q, 0.4 * p + 0.6 * q)),
    "amplify, fresh drafts plain": (AmplifyRelaxation(5.0), lambda p, q: np.minimum(q, 5 * p)),
}


def test_the_enumeration_of_the_plain_rule_is_the_target_law():
    law, target = jacobi_law(MODEL, 4, lambda p, q, *_: plain(p, q)), MODEL.enumerate_law(Warp())
    assert max(abs(law[sequence] - target[sequence]) for sequence in target) < 1e-6  # its softmax is float32


@pytest.mark.parametrize(("name", "base"), [*zip(RULES, (*SEED_BASES, *SEED_BASES), strict=True)])
def test_a_whole_decode_has_the_enumerated_law(name, base):
    rule, mass = RULES[name]

    def guarded(p, q, fresh, slot, drafts):
        return plain(p, q) if fresh and not rule.config.relax_fresh else mass(p, q)

    result = run_toy(MODEL, JacobiDrafter(4, "fresh", "uniform"), seeds_from(base, COUNT), relaxation=rule)
    assert law_p_value(result.tokens, jacobi_law(MODEL, 4, guarded)) > 1e-3
    if not rule.exact:
        assert law_p_value(result.tokens, MODEL.enumerate_law(Warp())) < 1e-6
