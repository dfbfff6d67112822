import math

import pytest
import torch
from helpers import random_laws
from scipy import stats

from csd_pipeline.decoding.noise import IndexedNoise, Purpose, seed_words
from csd_pipeline.decoding.sampling import Warp, draw_by_inverse_cdf, force_tokens, residual

LOGITS = torch.tensor([[[2.0, 1.0, 0.5, -1.0, 3.0]]])


def law_of(warp: Warp, logits=LOGITS) -> torch.Tensor:
    return warp.laws(logits, images=1)[0, 0]


def test_plain_law_is_the_softmax_in_float32():
    law = Warp().laws(LOGITS.bfloat16(), images=1)
    assert law.dtype == torch.float32
    assert torch.allclose(law, LOGITS.bfloat16().float().softmax(-1), atol=1e-7)


def test_guidance_mixes_logits_before_temperature():
    conditional, unconditional = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    laws = Warp(guidance_scale=3.0, temperature=0.5).laws(torch.cat([conditional, unconditional]), images=2)
    expected = ((unconditional + 3.0 * (conditional - unconditional)) / 0.5).softmax(-1)
    assert laws.shape == (2, 3, 6) and torch.allclose(laws, expected, atol=1e-6)


def test_guidance_zero_is_unconditional_and_one_needs_no_second_row():
    rows = torch.randn(2, 1, 4)
    assert torch.allclose(Warp(guidance_scale=0.0).laws(rows, 1)[0], rows[1].softmax(-1), atol=1e-6)
    assert not Warp(guidance_scale=1.0).guided and Warp(guidance_scale=0.0).guided and Warp(guidance_scale=1.5).guided


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
def test_top_k_keeps_the_k_most_probable_and_renormalises(k):
    full, law = LOGITS.softmax(-1)[0, 0], law_of(Warp(top_k=k))
    order = full.argsort(descending=True)[:k]
    expected = torch.zeros(5).scatter_(0, order, full[order] / full[order].sum())
    assert torch.allclose(law, expected, atol=1e-6)
    assert (law > 0).sum() == min(k, 5)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, 1), (0.5, 1), (0.63, 2), (0.85, 2), (0.9, 3), (0.95, 4), (0.995, 5), (1.0, 5)]
)
def test_top_p_keeps_the_smallest_set_with_that_mass(top_p, kept):
    full, law = LOGITS.softmax(-1)[0, 0], law_of(Warp(top_p=top_p))
    ordered = full.sort(descending=True).values  # cumulative .624, .853, .937, .989, 1
    assert (law > 0).sum() == kept
    assert ordered[:kept].sum() >= top_p - 1e-6
    assert kept == 1 or ordered[: kept - 1].sum() < top_p
    assert torch.allclose(law.sort(descending=True).values[:kept], ordered[:kept] / ordered[:kept].sum(), atol=1e-6)


def test_top_p_reached_exactly_keeps_no_more():
    law = Warp(top_p=0.5).laws(torch.zeros(1, 1, 2), 1)[0, 0]
    assert sorted(law.tolist()) == [0.0, 1.0]


def test_top_k_acts_before_top_p_and_both_after_temperature():
    law = law_of(Warp(temperature=2.0, top_k=3, top_p=0.6))
    expected = (LOGITS[0, 0] / 2).softmax(-1)
    order = expected.argsort(descending=True)[:3]
    three = expected[order] / expected[order].sum()  # .51, .31, .18
    assert torch.allclose(law[order], torch.tensor([*(three[:2] / three[:2].sum()), 0.0]), atol=1e-6)


@pytest.mark.parametrize("warp", [Warp(temperature=0), Warp(top_k=1), Warp(top_p=0.0), Warp(temperature=0, top_p=0.3)])
def test_greedy_forms_put_all_mass_on_the_most_probable_token(warp):
    logits = torch.randn(4, 3, 50)
    assert torch.equal(warp.laws(logits, 4), torch.nn.functional.one_hot(logits.argmax(-1), 50).float())


@pytest.mark.parametrize("warp", [Warp(), Warp(top_k=3), Warp(top_p=0.5), Warp(temperature=0), Warp(guidance_scale=2)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_never_look_like_a_law(warp, bad):
    logits = torch.randn(2, 2, 6)
    logits[0, 1, 4] = bad
    laws = warp.laws(logits, images=1 if warp.guided else 2)
    assert torch.isnan(laws[0, 1]).all() and torch.isfinite(laws[0, 0]).all()


@pytest.mark.parametrize(
    "warp",
    [Warp(guidance_scale=20, temperature=0.01), Warp(guidance_scale=20, top_p=0.0), Warp(guidance_scale=20, top_k=1)],
)
def test_extreme_logits_give_laws(warp):
    logits = torch.empty(4, 3, 64, dtype=torch.float16).uniform_(-1, 1).mul_(6e4)
    laws = warp.laws(logits, images=2)
    assert torch.isfinite(laws).all() and (laws >= 0).all()
    assert torch.allclose(laws.sum(-1), torch.ones(2, 3), atol=1e-6)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("guidance_scale", -1),
        ("guidance_scale", math.nan),
        ("guidance_scale", math.inf),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", math.nan),
        ("top_k", None),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("top_p", "0.9"),
    ],
)
def test_bad_knobs_are_refused(knob, value):
    with pytest.raises(ValueError, match=rf"{knob} must be .*(>= 0|between 0 and 1), got {value!r}"):
        Warp(**{knob: value})


def test_forced_positions_become_point_masses_and_others_stay():
    laws = random_laws(6, 4).view(2, 3, 4)
    forced = force_tokens(laws, torch.tensor([[-1, 2, -1], [0, -1, -1]]))
    assert forced[0, 1].tolist() == [0, 0, 1, 0] and forced[1, 0].tolist() == [1, 0, 0, 0]
    keep = torch.tensor([[True, False, True], [False, True, True]])
    assert torch.equal(forced[keep], laws[keep])


def test_inverse_cdf_never_returns_a_token_without_weight():
    weights = torch.tensor([0.0, 0.25, 0.0, 0.0, 0.5, 0.25, 0.0])
    uniform = torch.tensor([0.0, 0.1, 0.2499, 0.25, 0.5, 0.7499, 0.75, 1 - 2**-24])
    drawn = draw_by_inverse_cdf(weights.expand(len(uniform), -1), uniform)
    assert drawn.tolist() == [1, 1, 1, 4, 4, 4, 5, 5]
    laws = random_laws(3000, 40, zeros=0.8)
    for value in (0.0, 2**-24, 0.5, 1 - 2**-24):
        drawn = draw_by_inverse_cdf(laws, torch.full((3000,), value))
        assert (laws.gather(1, drawn[:, None]) > 0).all()


def test_inverse_cdf_survives_a_running_sum_that_is_not_level(monkeypatch):
    """A parallel running sum may differ by rounding across weights of 0; here it is made to, visibly."""
    monkeypatch.setattr("csd_pipeline.decoding.sampling._LEVEL_SUMS", ())
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0]])
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: torch.tensor([[0.5, 0.6, 1.0, 1.1]]))
    for uniform in (0.0, 0.49, 0.55, 0.58, 0.99, 1 - 2**-24):
        assert draw_by_inverse_cdf(weights, torch.tensor([uniform])).item() in (0, 2)


def test_inverse_cdf_follows_unnormalised_weights():
    weights, count = torch.tensor([3.0, 0.0, 1.0, 0.01, 2.0]), 200_000
    uniform = IndexedNoise(seed_words([0])).uniform(torch.arange(count)[None], Purpose.RESIDUAL, torch.tensor([0]))[0]
    seen = torch.bincount(draw_by_inverse_cdf(weights.expand(count, -1), uniform), minlength=5)
    share = weights.double() / weights.double().sum() * count
    keep = [0, 2, 3, 4]
    assert seen[1] == 0 and stats.chisquare(seen[keep].numpy(), share[keep].numpy()).pvalue > 1e-3


def test_residual_is_the_positive_part():
    law, mass = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    assert torch.allclose(residual(law, mass), torch.tensor([0.3, 0.0, 0.0]))


def test_residual_without_mass_is_in_proportion_to_the_law():
    law = random_laws(5, 7)
    for mass in (law, law + 1e-9):
        rest = residual(law, mass)
        assert torch.allclose(rest / rest.sum(-1, keepdim=True), law, rtol=1e-5, atol=0)


def test_residual_leaves_the_law_of_a_small_rest_as_it_is():
    """Rejected once in a million: what is added to the rest must not be seen in what is drawn."""
    law = torch.tensor([0.5, 0.5 - 1e-6, 1e-6], dtype=torch.float64)
    mass = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    rest = residual(law, mass)
    assert (rest / rest.sum()).tolist() == pytest.approx([0, 0, 1], abs=2e-6)
