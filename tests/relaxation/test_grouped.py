import math

import pytest
import torch
from helpers import SEED_BASES, emitted, law_p_value, random_laws, residual, run_toy, seeds_from, tv, window_of

from csd_pipeline.decoding import Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import GroupedRelaxation
from csd_pipeline.targets.toy import ToyTarget

P, Q = random_laws(200, 12, seed=1), random_laws(200, 12, seed=2)


def plainly(p, q, size: int, gap: float) -> list[float]:
    """f of every code, group by group."""
    ranking = sorted(range(len(p)), key=lambda code: (-p[code], code))
    f = [0.0] * len(p)
    for rank, code in enumerate(ranking):
        near = ranking[max(rank - size // 2, 0) : rank + size // 2 + 1]
        group = [other for other in near if other == code or abs(p[other] - p[code]) < gap]
        below = sum(q[other] for other in group)
        f[code] = min(1.0, sum(p[other] for other in group) / below) if below > 0 else 1.0
    return [value if p[code] > 0 else 0.0 for code, value in enumerate(f)]


def test_four_code_example():
    p, q = (0.40, 0.30, 0.20, 0.10), (0.05, 0.25, 0.25, 0.45)
    acceptance, law, drift = emitted([p], [q], GroupedRelaxation(2, gap=1.0))
    assert acceptance[0].tolist() == pytest.approx([1, 1, 0.6 / 0.95, 0.3 / 0.7], abs=1e-6)
    assert (torch.tensor(q) * acceptance[0]).sum().item() == pytest.approx(0.650752, abs=1e-6)
    repair = residual(torch.tensor(p).double(), torch.tensor(q) * acceptance[0])
    assert (repair / repair.sum()).tolist() == pytest.approx([0.791667, 0.113095, 0.095238, 0], abs=1e-6)
    assert law[0].tolist() == pytest.approx([0.326488, 0.289498, 0.191156, 0.192857], abs=1e-6)
    assert drift.item() == pytest.approx(0.092857, abs=1e-6)


def test_the_plain_residual_would_cost_more():
    p, q = (0.82, 0.08, 0.07, 0.02, 0.01), (0.001, 0.07, 0.06, 0.14, 0.729)
    acceptance, _, drift = emitted([p], [q], GroupedRelaxation(2, gap=1.0))
    assert acceptance[0].tolist() == pytest.approx([1, 1, 0.629630, 0.107643, 0.034522], abs=1e-6)
    assert drift.item() == pytest.approx(0.015167, abs=1e-6)
    p, q = torch.tensor(p).double(), torch.tensor(q).double()
    plain = residual(p, q)
    mass = q * acceptance[0]
    assert tv(mass + (1 - mass.sum()) * plain / plain.sum(), p).item() == pytest.approx(0.027009, abs=1e-6)


def test_groups_can_accept_less_than_plain_decoding():
    p, q = (0.79, 0.105, 0.095, 0.008, 0.002), (0.055, 0.09, 0.11, 0.265, 0.48)
    accepted = [(torch.tensor(q) * emitted([p], [q], GroupedRelaxation(size, gap=1.0))[0]).sum() for size in (2, 0)]
    assert accepted[0].item() == pytest.approx(0.233191, abs=1e-6)
    assert accepted[1].item() == pytest.approx(0.25, abs=1e-6)
    assert not GroupedRelaxation.dominates_vanilla


@pytest.mark.parametrize("size", [2, 3, 5, 8, 40])
@pytest.mark.parametrize("gap", [0.02, 0.15, 1.0])
def test_running_sums_equal_a_loop_over_groups(size, gap):
    acceptance, _, _ = emitted(P, Q, GroupedRelaxation(size, gap))
    wanted = torch.tensor([plainly(p, q, size, gap) for p, q in zip(P.tolist(), Q.tolist(), strict=True)])
    assert (acceptance - wanted).abs()[Q > 0].max() < 1e-6


def test_groups_far_down_a_long_ranking_keep_their_precision():
    """The last 8 of 16384 codes hold 1e-9 of the mass: float32 running sums near 1 would not see them."""
    p, q = (torch.linspace(1, 2, 16384, dtype=torch.float64) for _ in range(2))
    p[-8:] = torch.tensor([8.0, 7, 6, 5, 4, 3, 2, 1], dtype=torch.float64) * 1e-6
    q = q.flip(0).clone()
    q[-8:] = 4e-6  # f is 1/2 at the last code but one
    p, q = (law / law.sum() for law in (p, q))
    window = window_of(p.float()[None, None], q.float()[None, None], [[16384 - 2]])
    mass = GroupedRelaxation(2, gap=1.0).relaxed_mass(window)[0, 0, -2].double()
    assert (mass / q[-2]).item() == pytest.approx((p[-3:].sum() / q[-3:].sum()).item(), rel=1e-4)


def test_groups_do_not_depend_on_the_numbering_of_the_codes():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    p, q = random_laws(200, 12, zeros=0, seed=4), random_laws(200, 12, zeros=0, seed=5)  # no ties
    here, there = (emitted(a, b, GroupedRelaxation(4))[0] for a, b in ((p, q), (p[:, order], q[:, order])))
    assert (here[:, order] - there).abs().max() < 1e-6


def test_equal_laws_are_always_accepted():
    assert (emitted(P, P, GroupedRelaxation(6))[0][P > 0] > 1 - 1e-6).all()


def test_a_group_of_one_is_exact():
    assert GroupedRelaxation(0).exact and GroupedRelaxation(1).exact and not GroupedRelaxation(2).exact


@pytest.mark.parametrize("base", SEED_BASES)
def test_whole_images_follow_the_emitted_law(base):
    """Three tokens, one relaxed draft each: the first and the last are plain draws."""
    model, count = ToyTarget(4, 1, 3, scale=1.5, seed=2), 40_000
    rule, size, gap = GroupedRelaxation(2, gap=0.5, relax_fresh=True), 2, 0.5
    drafter = JacobiDrafter(window=2, init="uniform")
    tokens = run_toy(model, drafter, seeds_from(base, count), relaxation=rule).tokens
    law = {}
    for sequence, probability in model.enumerate_law(Warp()).items():
        p = model.table[0, 1 + sequence[0]].softmax(-1)
        f = torch.tensor(plainly(p.tolist(), [0.25] * 4, size, gap))
        rest = (p - f / 4).clamp(min=0)
        emitted_law = f / 4 + (1 - f.mean()) * rest / rest.sum()
        law[sequence] = probability * (emitted_law[sequence[1]] / p[sequence[1]]).item()
    assert sum(law.values()) == pytest.approx(1, abs=1e-5)
    assert law_p_value(tokens, law) > 1e-3
    assert law_p_value(tokens, model.enumerate_law(Warp())) < 1e-6


@pytest.mark.parametrize("size", [-1, 2.5, "3", True])
def test_bad_size_is_refused(size):
    with pytest.raises(ValueError, match=f"size must be an integer >= 0, got {size!r}"):
        GroupedRelaxation(size)


@pytest.mark.parametrize("gap", [-0.1, 1.5, math.nan])
def test_bad_gap_is_refused(gap):
    with pytest.raises(ValueError, match=f"gap must be between 0 and 1, got {gap!r}"):
        GroupedRelaxation(gap=gap)


def test_gap_zero_is_refused():
    with pytest.raises(ValueError, match="gap must be above 0, got 0; use size=0"):
        GroupedRelaxation(gap=0.0)
