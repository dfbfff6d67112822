import pytest
import torch
from diffusers.configuration_utils import register_to_config
from helpers import (
    T3_P,
    T3_Q,
    ScriptedNoise,
    draws_from,
    emitted,
    every_symbol,
    noise_of,
    random_laws,
    tv,
    window_of,
)

from csd_pipeline.alignment import AlignmentFilter, TVFilter
from csd_pipeline.decoding.noise import Purpose
from csd_pipeline.decoding.sampling import draw_by_inverse_cdf, residual
from csd_pipeline.decoding.verification import relaxes, verify, verify_shared_noise
from csd_pipeline.relaxation import EntropyRelaxation, Exact, Relaxation

P, Q = random_laws(1000, 8, seed=1), random_laws(1000, 8, seed=2)


class Scaled(Relaxation):
    """``f = c p/q`` at every symbol: stricter than plain for c < 1."""

    exact = False

    @register_to_config
    def __init__(self, factor, support_guard=False, relax_fresh=True):
        self.factor = factor

    def accepted_mass(self, window):
        return torch.minimum(window.q, self.factor * window.p)


class Arbitrary(Scaled):
    """Some acceptance probability, above the plain one at some symbols, below it at others."""

    def accepted_mass(self, window):
        wave = 0.5 + 0.5 * torch.sin(self.factor * torch.arange(window.q.shape[-1]) + 40 * window.p)
        return window.q * wave


def test_three_symbol_example():
    acceptance, law, drift = emitted([T3_P], [T3_Q], Exact())
    assert acceptance[0].tolist() == pytest.approx([1, 1, 1 / 3], abs=1e-6)
    assert law[0].tolist() == pytest.approx(T3_P, abs=1e-6) and drift == 0
    q = torch.tensor(T3_Q, dtype=torch.float64)
    assert (q * acceptance).sum().item() == pytest.approx(0.6, abs=1e-6)
    repair = residual(torch.tensor(T3_P, dtype=torch.float64), q * acceptance[0])
    assert (repair / repair.sum()).tolist() == pytest.approx([0.75, 0.25, 0], abs=1e-6)


def test_second_example():
    p, q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
    acceptance, law, _ = emitted([p], [q], Exact())
    assert acceptance[0].tolist() == pytest.approx([1, 0.6, 2 / 3], abs=1e-6)
    assert (torch.tensor(q) * acceptance[0]).sum().item() == pytest.approx(0.7, abs=1e-6)
    repair = residual(torch.tensor(p), torch.tensor(q) * acceptance[0].float())
    assert (repair / repair.sum()).tolist() == pytest.approx([1, 0, 0], abs=1e-6)
    assert law[0].tolist() == pytest.approx(p, abs=1e-6)


def test_one_pass_by_hand():
    """Draft 2 survives u = .40 < .667, draft 0 fails u = .90 > .857, and the residual holds token 1 alone."""
    p = [[(0.5, 0.3, 0.2), (0.6, 0.3, 0.1), (0.2, 0.2, 0.6)]]
    q = [[(0.2, 0.5, 0.3), (0.7, 0.2, 0.1), (0.3, 0.3, 0.4)]]
    window = window_of(p, q, drafts=[[2, 0, 1]])
    noise = ScriptedNoise(VERIFY=[[0.40, 0.90, 0.0]], RESIDUAL=[0.5])
    outcome = verify(window, Exact(), None, noise, torch.zeros(1, dtype=torch.int64))
    assert outcome.accepted.tolist() == [1] and outcome.next_token.tolist() == [1]


def test_verifying_twice_needs_the_new_law_on_record():
    """p against q = its mirror: after one test the token has law p; testing it against the old q again spoils it."""
    p, q = torch.tensor([0.6, 0.4], dtype=torch.float64), torch.tensor([0.4, 0.6], dtype=torch.float64)

    def law_after(token_law, recorded):
        acceptance = emitted([p.tolist()], [recorded.tolist()], Exact())[0][0]
        repair = residual(p, recorded * acceptance)
        return token_law * acceptance + (1 - (token_law * acceptance).sum()) * repair / repair.sum()

    once = law_after(q, q)
    assert once.tolist() == pytest.approx([0.6, 0.4], abs=1e-6)
    assert law_after(once, p).tolist() == pytest.approx([0.6, 0.4], abs=1e-6)
    assert law_after(once, q).tolist() == pytest.approx([0.733333, 0.266667], abs=1e-6)


def test_exact_emits_the_target_law_for_all_laws():
    acceptance, law, drift = emitted(P, Q, Exact())
    assert (law - P.double()).abs().max() < 1e-6 and (drift == 0).all()
    assert ((Q.double() * acceptance).sum(1) - 1 + tv(P.double(), Q.double())).abs().max() < 1e-6


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.9])
def test_a_stricter_rule_is_still_exact(factor):
    _, law, drift = emitted(P, Q, Scaled(factor))
    assert (law - P.double()).abs().max() < 1e-6 and drift.max() < 1e-6


@pytest.mark.parametrize("rule", [Arbitrary(1.0), Arbitrary(2.3), Scaled(1.5), EntropyRelaxation(0.4)])
def test_the_residual_is_the_best_possible_and_drift_says_how_good(rule):
    acceptance, law, drift = emitted(P, Q, rule)
    distance = tv(law, P.double())
    assert (distance - drift).abs().max() < 1e-6 and drift.max() > 0.05
    mass = Q.double() * acceptance
    rejected = 1 - mass.sum(1, keepdim=True)
    for seed in range(20):
        other = random_laws(1000, 8, seed=100 + seed).double()
        assert (tv(mass + rejected * other, P.double()) >= distance - 1e-6).all()


def test_repairs_follow_the_residual_law():
    """Every image is rejected; evenly spaced uniforms read the law of the repaired token."""
    count, rule = 4000, EntropyRelaxation(0.2)
    p, q = torch.tensor([0.1, 0.4, 0.3, 0.2]), torch.tensor([0.5, 0.1, 0.1, 0.3])
    window = window_of(p.expand(count, 1, 4), q.expand(count, 1, 4))
    spread = (torch.arange(count) + 0.5) / count
    outcome = verify(window, rule, None, ScriptedNoise(VERIFY=1 - 2**-24, RESIDUAL=spread), torch.zeros(count))
    share = torch.bincount(outcome.next_token, minlength=4) / count
    assert (outcome.accepted == 0).all() and share.tolist() == pytest.approx([0, 0.6, 0.4, 0], abs=2 / count)


def test_repairs_of_a_rule_below_the_plain_one_use_its_own_mass():
    count = 4000
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    window = window_of(p.expand(count, 1, 3), q.expand(count, 1, 3))
    spread = (torch.arange(count) + 0.5) / count
    noise = ScriptedNoise(VERIFY=1 - 2**-24, RESIDUAL=spread)
    outcome = verify(window, Scaled(0.3), None, noise, torch.zeros(count))
    rest = torch.tensor([0.35, 0.21, 0.14])  # p - .3 p
    share = torch.bincount(outcome.next_token, minlength=3) / count
    assert share.tolist() == pytest.approx((rest / rest.sum()).tolist(), abs=2 / count)


@pytest.mark.parametrize("rule", [Exact(), EntropyRelaxation(0.3)])
@pytest.mark.parametrize("alignment_filter", [None, TVFilter(0.5)])
def test_verify_equals_a_loop_in_plain_python(rule, alignment_filter):
    images, length, vocabulary = 300, 4, 6
    p, q = (random_laws(images * length, vocabulary, seed=s).view(images, length, vocabulary) for s in (3, 4))
    q = 0.5 * p + 0.5 * q
    lengths = torch.arange(images) % (length + 1)
    drafts, bonus = draws_from(q), random_laws(images, vocabulary, seed=5)[:, None]
    window = window_of(p, q, drafts, lengths=lengths, bonus=bonus)
    noise, draw = noise_of(window)
    outcome = verify(window, rule, alignment_filter, noise, draw)
    uniform = noise.uniform(window.positions[:, :-1], Purpose.VERIFY, draw)
    repair = noise.uniform(window.positions, Purpose.RESIDUAL, draw)
    gumbel = noise.gumbel(window.positions, vocabulary)
    for b in range(images):
        taken = 0
        for i in range(lengths[b]):
            law, draft_law, x = p[b, i].double(), q[b, i].double(), drafts[b, i]
            bonus_mass = 0.0
            if not rule.exact and (alignment_filter is None or tv(law, draft_law) < alignment_filter.config.delta):
                bonus_mass = rule.config.lam * -torch.special.xlogy(law, law).sum()
            f = min(1.0, law[x] / draft_law[x] + bonus_mass) if law[x] > 0 else 0.0
            assert outcome.acceptance[b, i].item() == pytest.approx(float(f), abs=1e-5)
            if uniform[b, i] >= f:
                rest = (p[b, i] - q[b, i]).clamp(min=0)
                assert outcome.next_token[b] == draw_by_inverse_cdf(rest, repair[b, i])
                break
            taken += 1
        assert outcome.accepted[b] == taken
        if taken == lengths[b]:
            law = window.target_laws[b, taken]
            assert outcome.next_token[b] == (law.log() + gumbel[b, taken]).argmax()
    assert len(outcome.accepted.unique()) == length + 1


def test_equal_laws_are_always_accepted_and_disjoint_ones_never():
    laws = random_laws(500, 6, zeros=0).view(100, 5, 6)
    window = window_of(laws, laws, draws_from(laws))
    assert (verify(window, Exact(), None, *noise_of(window)).accepted == 5).all()
    half = torch.zeros_like(laws).index_fill(2, torch.tensor([0, 1]), 0.5)
    other = torch.zeros_like(laws).index_fill(2, torch.tensor([4, 5]), 0.5)
    window = window_of(half, other, torch.full((100, 5), 4))
    outcome = verify(window, Exact(), None, *noise_of(window))
    assert (outcome.accepted == 0).all() and (outcome.next_token < 2).all()


def test_padding_is_never_accepted():
    laws = random_laws(300, 4).view(100, 3, 4)
    lengths = torch.arange(100) % 3
    window = window_of(laws, laws, draws_from(laws), lengths=lengths)
    for outcome in (
        verify(window, EntropyRelaxation(5.0), None, *noise_of(window)),
        verify_shared_noise(window, noise_of(window)[0]),
    ):
        assert (outcome.accepted <= lengths).all()


def test_shared_noise_keeps_exactly_the_tokens_plain_decoding_would_draw():
    laws = random_laws(4000, 5).view(1000, 4, 5)
    window = window_of(laws, laws)
    noise, _ = noise_of(window)
    plain = (window.target_laws.log() + noise.gumbel(window.positions, 5)).argmax(-1)
    window.drafts = torch.where(torch.rand(1000, 4) < 0.7, plain[:, :-1], (plain[:, :-1] + 1) % 5)
    outcome = verify_shared_noise(window, noise)
    right = (window.drafts == plain[:, :-1]).long().cumprod(1).sum(1)
    assert torch.equal(outcome.accepted, right) and torch.equal(outcome.choice, plain)
    assert torch.equal(outcome.next_token, plain.gather(1, right[:, None])[:, 0])


def test_relaxes_knows_what_is_exact_by_construction():
    assert not relaxes(Exact(), None) and not relaxes(EntropyRelaxation(0.0), None)
    assert not relaxes(EntropyRelaxation(0.5), TVFilter(0.0)) and relaxes(EntropyRelaxation(0.5), TVFilter(0.1))
    window = every_symbol([T3_P], [T3_Q])
    outcome = verify(window, EntropyRelaxation(0.5), TVFilter(0.0), *noise_of(window))
    assert torch.equal(outcome.acceptance, window.vanilla) and (outcome.drift == 0).all()


class OneGatePerImage(AlignmentFilter):
    """[B, 1] where [B, L] is asked for."""

    @register_to_config
    def __init__(self, wide: bool = False):
        pass

    def gate(self, window, drift):
        gate = torch.arange(1.0, len(drift) + 1)[:, None] / len(drift)
        return gate.expand_as(drift) if self.config.wide else gate


@pytest.mark.parametrize("relax_fresh", [False, True])
def test_a_gate_that_broadcasts_is_that_of_every_slot_of_its_image(relax_fresh):
    laws = [random_laws(64 * length, 8, seed=length).view(64, length, 8) for length in (4, 3)]
    window = window_of(laws[0][:, :3], laws[1], drafts=draws_from(laws[1], seed=5), bonus=laws[0][:, 3:])
    rule = EntropyRelaxation(2.0, relax_fresh=relax_fresh)
    narrow, wide = (verify(window, rule, OneGatePerImage(wide), *noise_of(window)) for wide in (False, True))
    assert 0 < narrow.accepted.float().mean() < 3 and narrow.drift.max() > 0
    for name in ("accepted", "next_token", "acceptance", "drift"):
        assert torch.equal(getattr(narrow, name), getattr(wide, name))
