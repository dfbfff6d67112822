import itertools
import math

import pytest
import torch
from helpers import SEED_BASES, draws_from, law_p_value, noise_of, random_laws, run_toy, seeds_from, window_of

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.decoding import Warp
from csd_pipeline.decoding.verification import verify
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import Exact, SemanticRelaxation
from csd_pipeline.targets.toy import ToyTarget

S, Q_DRAFT = (0.10, 0.25, 0.40, 0.30, 0.35), (0.20, 0.20, 0.30, 0.50, 0.25)


def window_with(s, q_draft, **options):
    """One image of two codes; every draft is code 0 with these probabilities under target and draft law."""
    laws = [torch.tensor([[[x, 1 - x] for x in values]]) for values in (s, q_draft)]
    return window_of(*laws, **options)


def acceptance_of(window, **knobs) -> list[float]:
    return verify(window, SemanticRelaxation(**knobs), None, *noise_of(window)).acceptance[0].tolist()


def runs_of(s) -> list[list[int]]:
    runs = [[0]]
    for j in range(1, len(s)):
        runs[-1].append(j) if s[j] >= s[j - 1] else runs.append([j])
    return runs


def prefix_law(s, r, alpha: float) -> list[float]:
    """Probability of accepting exactly 0, 1, ... drafts, by the published steps: one uniform a run, tried backwards."""
    law, arrived = [0.0] * (len(s) + 1), 1.0
    for run in runs_of(s):
        total = sum(s[j] for j in run)
        g = max(i for i in run if sum(s[j] for j in run if j >= i) >= alpha * total - 1e-12)
        limits = {e: min(1.0, math.prod(r[j] for j in run if g <= j <= e)) for e in run if e >= g}
        cuts = sorted({0.0, 1.0, *limits.values()})
        passed = 0.0
        for low, high in itertools.pairwise(cuts):  # the same outcome for every u in between
            kept = next((e for e in reversed(run) if e >= g and (low + high) / 2 <= limits[e]), g - 1)
            if kept == run[-1]:
                passed += high - low
            else:
                law[kept + 1] += arrived * (high - low)
        arrived *= passed
    law[len(s)] += arrived
    return law


@pytest.mark.parametrize(
    ("alpha", "joint"), [(0.8, (1, 1, 1, 0.84, 1)), (0.5, (1, 1, 1, 1, 1)), (1.0, (0.833333, 1, 1, 0.84, 1))]
)
def test_five_draft_example(alpha, joint):
    """Runs {1, 2, 3} and {4, 5}: the plain rule accepts the first of each with .5 and .6."""
    window = window_with(S, Q_DRAFT)
    assert window.vanilla[0].tolist() == pytest.approx([0.5, 1, 1, 0.6, 1], abs=1e-6)
    assert acceptance_of(window, alpha=alpha) == pytest.approx(joint, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0])
def test_one_test_per_draft_equals_the_published_steps(alpha):
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        s = (0.02 + 0.96 * torch.rand(6, generator=generator)).tolist()
        q_draft = (0.02 + 0.96 * torch.rand(6, generator=generator)).tolist()
        f = acceptance_of(window_with(s, q_draft), alpha=alpha)
        ours = [math.prod(f[:j]) * (1 - f[j]) for j in range(6)] + [math.prod(f)]
        assert ours == pytest.approx(prefix_law(s, [a / b for a, b in zip(s, q_draft, strict=True)], alpha), abs=1e-5)


def test_falling_probabilities_are_runs_of_one_and_therefore_plain():
    window = window_with((0.9, 0.7, 0.5, 0.2), (0.95, 0.9, 0.4, 0.6))
    outcome, plain = (verify(window, rule, None, *noise_of(window)) for rule in (SemanticRelaxation(), Exact()))
    assert torch.equal(outcome.acceptance, plain.acceptance) and (outcome.drift == 0).all()


def test_long_runs_can_be_cut():
    window = window_with((0.1, 0.2, 0.3, 0.4, 0.5), (0.2, 0.1, 0.6, 0.2, 0.9))
    pairs = acceptance_of(window, alpha=1.0, longest=2)
    apart = [acceptance_of(window_with(*(v[i : i + 2] for v in ((0.1, 0.2, 0.3, 0.4, 0.5), (0.2, 0.1, 0.6, 0.2, 0.9)))),
                           alpha=1.0) for i in (0, 2, 4)]  # fmt: skip
    assert pairs == pytest.approx(sum(apart, []), abs=1e-6)
    assert SemanticRelaxation(longest=1).exact and not SemanticRelaxation(longest=2).exact
    assert acceptance_of(window, longest=1) == window.vanilla[0].tolist()


def test_fresh_drafts_and_padding_end_a_run():
    fresh = torch.tensor([[False, False, True, False, False]])
    cut = window_with((0.1, 0.2, 0.3, 0.4, 0.5), (0.2, 0.1, 0.6, 0.8, 0.2), fresh=fresh, lengths=[4])
    got = acceptance_of(cut, alpha=1.0)
    assert got[:2] == pytest.approx(acceptance_of(window_with((0.1, 0.2), (0.2, 0.1)), alpha=1.0), abs=1e-6)
    assert got[2:4] == pytest.approx([0.5, 0.5], abs=1e-6)
    whole = acceptance_of(cut, alpha=1.0, relax_fresh=True)
    assert whole[:4] == pytest.approx(
        acceptance_of(window_with((0.1, 0.2, 0.3, 0.4), (0.2, 0.1, 0.6, 0.8)), alpha=1.0), abs=1e-6
    )


def test_impossible_drafts_stay_impossible_unless_asked():
    window = window_with((0.0, 0.3, 0.4), (0.2, 0.3, 0.4))
    assert acceptance_of(window)[0] == 0
    assert acceptance_of(window, support_guard=False)[0] == 1  # the start of a run is accepted unseen


def test_drift_is_the_acceptance_gained():
    laws = [random_laws(2000, 6, seed=i).view(500, 4, 6) for i in range(2)]
    window = window_of(*laws, draws_from(laws[1]))
    outcome = verify(window, SemanticRelaxation(), None, *noise_of(window))
    assert torch.equal(outcome.drift, outcome.acceptance - window.vanilla) and outcome.drift.max() > 0.5


def whole_law(model: ToyTarget, alpha: float) -> dict:
    """Law of four tokens: one plain draw, two uniform drafts judged together, plain draws after the first failure."""
    law, target = dict.fromkeys(model.enumerate_law(Warp()), 0.0), model.enumerate_law(Warp())
    codes = model.config.vocabulary

    def law_after(*prefix):
        index = model.prefix_index(torch.tensor([*prefix, *[0] * (4 - len(prefix))]), torch.tensor(len(prefix)))
        return model.table[0, index].softmax(-1)

    def spread(prefix, weight):
        """Continue ``prefix`` by plain draws."""
        given = {x: target[x] for x in target if x[: len(prefix)] == prefix}
        for sequence, probability in given.items():
            law[sequence] += weight * probability / sum(given.values())

    for first in range(codes):
        p1 = law_after(first)
        for drafts in itertools.product(range(codes), repeat=2):
            weight = law_after()[first].item() / codes**2
            laws = [p1, law_after(first, drafts[0])]
            s = [laws[i][drafts[i]].item() for i in range(2)]
            none, one, both = prefix_law(s, [x * codes for x in s], alpha)
            spread((first, *drafts), weight * both)
            for kept, share in ((0, none), (1, one)):
                rest = (laws[kept] - 1 / codes).clamp(min=0)
                for token in range(codes):
                    spread((first, *drafts[:kept], token), weight * share * (rest[token] / rest.sum()).item())
    return law


@pytest.mark.parametrize("base", SEED_BASES)
def test_whole_images_follow_the_biased_law_of_the_published_steps(base):
    model = ToyTarget(3, 1, 4, scale=1.5, seed=4)
    rule = SemanticRelaxation(0.8, relax_fresh=True)
    drafter = JacobiDrafter(window=3, init="uniform", redraw="fresh")
    result = run_toy(model, drafter, seeds_from(base, 40_000), relaxation=rule)
    law = whole_law(model, 0.8)
    assert sum(law.values()) == pytest.approx(1, abs=1e-5)
    assert law_p_value(result.tokens, law) > 1e-3
    target = model.enumerate_law(Warp())
    distance = 0.5 * sum(abs(law[x] - target[x]) for x in law)
    spent = sum(trace.drift for trace in result.traces) / 40_000
    assert 0.02 < distance <= spent + 0.01


@pytest.mark.parametrize("redraw", ["fresh", "coupled"])
def test_what_is_reported_bounds_the_distance_of_whole_images(redraw):
    model, count = ToyTarget(3, 1, 5, scale=1.5, seed=5), 40_000
    drafter = JacobiDrafter(window=4, redraw=redraw)
    result = run_toy(model, drafter, range(count), relaxation=SemanticRelaxation(0.8))
    found, counts = result.tokens.unique(dim=0, return_counts=True)
    seen = dict(zip(map(tuple, found.tolist()), (counts / count).tolist(), strict=True))
    target = model.enumerate_law(Warp())
    distance = 0.5 * sum(abs(seen.get(x, 0.0) - target[x]) for x in target)
    spent = sum(trace.drift for trace in result.traces) / count
    noise = sum((x * (1 - x) / (2 * math.pi * count)) ** 0.5 for x in target.values())
    assert spent > 0.01 and distance <= spent + 2 * noise


def test_the_embedded_model_reports_its_drift():
    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipeline.set_progress_bar_config(disable=True)
    pipeline.register_modules(drafter=JacobiDrafter(window=32), relaxation=SemanticRelaxation())
    relaxed = pipeline("a red apple on white", seed=3, output_type="latent").traces[0]
    pipeline.register_modules(relaxation=SemanticRelaxation(longest=1))
    exact = pipeline("a red apple on white", seed=3, output_type="latent").traces[0]
    assert exact.drift == 0 < relaxed.drift and relaxed.nfe < exact.nfe


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"alpha": 1.2}, "alpha must be between 0 and 1, got 1.2"),
        ({"alpha": 0.0}, "alpha must be above 0, got 0; use longest=1"),
        ({"longest": -1}, "longest must be an integer >= 0, got -1"),
    ],
)
def test_bad_knobs_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        SemanticRelaxation(**knobs)
