import pytest
import torch
from helpers import law_p_value, random_laws, run_toy, seeds_from, window_of

from csd_pipeline.alignment import TVFilter
from csd_pipeline.decoding import Warp
from csd_pipeline.decoding.verification import is_exact
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.growth_guide import GrowthGuide
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.relaxation import BlockVerification, EntropyRelaxation, Exact
from csd_pipeline.targets.toy import ToyTarget

PASSES = torch.tensor([[0.30, 0.25, 0.20, 0.15, 0.10], [0.24, 0.30, 0.22, 0.14, 0.10], [0.20, 0.36, 0.21, 0.13, 0.10]])
NEXT = torch.tensor([0.18, 0.40, 0.20, 0.12, 0.10])
WINDOW = torch.zeros(1, 4, 5)
MODEL = ToyTarget(2, 2, 3, scale=1.2, seed=1)
THREE = ToyTarget(3, 2, 2, scale=1.2, seed=2)


def seen_at_slots(guide: GrowthGuide, laws: torch.Tensor) -> torch.Tensor:
    """Guided law of one position that a pass sees at slot 2, the next at 1, the next at 0, one token committed each."""
    for law, slot in zip(laws, (2, 1, 0), strict=True):
        window = window_of(law.expand(1, 3, 5), law.expand(1, 3, 5))
        guided = guide.laws(window, torch.tensor([0]))[0, slot]
    return guided


@pytest.mark.parametrize(
    ("weight", "guided", "exact", "distance"),
    [
        (1.0, [0.181818, 0.418182, 0.190909, 0.118182, 0.090909], 0.98, 0.054545),
        (2.0, [0.166667, 0.466667, 0.175, 0.108333, 0.083333], 0.933333, 0.1),
        (5.0, [0.133333, 0.573333, 0.14, 0.086667, 0.066667], 0.826667, 0.2),
    ],
)
def test_the_worked_example(weight, guided, exact, distance):
    """Token 1 has grown twice, .8 * .05 + .06 = .1; token 2 grew, then fell; acceptance and bias at the law to come."""
    law = seen_at_slots(GrowthGuide(weight, 0.8, 0.4, WINDOW), PASSES)
    assert law.tolist() == pytest.approx(guided, abs=1e-6)
    assert torch.minimum(NEXT, law).sum().item() == pytest.approx(exact, abs=1e-6)
    accepted = law * (NEXT / PASSES[-1]).clamp(max=1)
    rest = (NEXT - PASSES[-1]).clamp(min=0)
    emitted = accepted + (1 - accepted.sum()) * rest / rest.sum()
    assert 0.5 * (emitted - NEXT).abs().sum().item() == pytest.approx(distance, abs=2e-3)


def test_only_the_most_probable_tokens_are_favoured():
    falling = PASSES.flip(-1)  # now the growing tokens 3 and 2 are those of the flipped order
    law = seen_at_slots(GrowthGuide(1.0, 0.8, 0.2, WINDOW), falling)
    assert law[3] > PASSES[-1, 1] and torch.allclose(
        law[[0, 1, 2, 4]] / law[0], (falling[-1] / falling[-1, 0])[[0, 1, 2, 4]]
    )
    least = torch.tensor([[0.6, 0.4, 0, 0, 0], [0.55, 0.45, 0, 0, 0], [0.51, 0.49, 0, 0, 0]])
    assert torch.equal(
        seen_at_slots(GrowthGuide(1.0, 0.8, 0.5, WINDOW), least), least[-1]
    )  # token 1 grew, but one of two counts


def test_a_law_that_stands_still_is_left_alone():
    law = PASSES[:1].expand(3, 5)
    assert torch.equal(seen_at_slots(GrowthGuide(3.0, 1.0, 1.0, WINDOW), law), law[0])


def test_scores_belong_to_positions_and_images():
    """Against a plain record by absolute position, windows of any length, images leaving."""
    torch.manual_seed(0)
    guide, images = GrowthGuide(0.7, 0.9, 0.3, torch.zeros(3, 7, 7)), [0, 1, 2]
    start, lengths = {0: 0, 1: 0, 2: 0}, {0: 0, 1: 0, 2: 0}
    record: dict = {}
    for step in range(12):
        if step == 5:
            images = [2, 0]
            guide.keep(torch.tensor([2, 0]))
        drafts = max(lengths[i] for i in images)
        laws = random_laws(len(images) * (drafts + 1), 7, seed=step).view(len(images), drafts + 1, 7)
        window = window_of(laws[:, :-1], laws[:, :-1], lengths=[lengths[i] for i in images], bonus=laws[:, -1:])
        accepted = torch.tensor([int(torch.randint(lengths[i] + 1, ())) for i in images])
        got = guide.laws(window, accepted)
        for row, image in enumerate(images):
            for slot in range(lengths[image] + 1):
                law, key = laws[row, slot], (image, start[image] + slot)
                before, score = record.get(key, (law, torch.zeros(7)))
                score = torch.where(law > before, 0.9 * score + law - before, 0.0)
                record[key] = (law, score)
                best = law.argsort(descending=True)[: -(-3 * int((law > 0).sum()) // 10)]
                bonus = torch.zeros(7).index_copy(0, best, 0.7 * score[best])
                assert torch.allclose(got[row, slot], (law + bonus) / (1 + bonus.sum()), atol=1e-6)
            start[image] += int(accepted[row]) + 1
            left = lengths[image] - int(accepted[row]) - 1  # a window never ends before the last one did
            lengths[image] = max(left, int(torch.randint(6, ())))
    assert any((score > 0.3).any() for _, score in record.values())


class Unweighted(JacobiDrafter):
    """Goes the way of a guided run with scores that count for nothing."""

    def begin(self, state):
        run = super().begin(state)
        laws = torch.zeros(len(state.counts), min(self.window, state.grid.tokens), state.vocabulary)
        run.guide = GrowthGuide(0.0, 0.8, 0.1, laws)
        return run


@pytest.mark.parametrize("redraw", REDRAWS)
@pytest.mark.parametrize("rule", [Exact(), EntropyRelaxation(0.5)])
def test_weight_zero_is_no_guide_bit_for_bit(redraw, rule):
    plain = run_toy(MODEL, JacobiDrafter(5, redraw), range(2000), relaxation=rule)
    for drafter in (Unweighted(5, redraw), JacobiDrafter(5, redraw, guide="growth", growth_weight=0.0, record="lossy")):
        guided = run_toy(MODEL, drafter, range(2000), relaxation=rule)
        assert torch.equal(plain.tokens, guided.tokens)
        assert [t.accepted for t in plain.traces] == [t.accepted for t in guided.traces]


def guided(redraw, window=5, **knobs):
    return JacobiDrafter(window, redraw, guide="growth", **{"growth_weight": 2.0, "growth_share": 0.5} | knobs)


@pytest.mark.parametrize("redraw", REDRAWS)
@pytest.mark.parametrize(("model", "knobs"), [(MODEL, {}), (THREE, {"window": 4, "growth_decay": 1.0})])
def test_recording_the_guided_law_is_exact(redraw, model, knobs):
    result = run_toy(model, guided(redraw, **knobs), seeds_from(11, 20_000))
    assert law_p_value(result.tokens, model.enumerate_law(Warp())) > 1e-3


def test_block_verification_stays_exact():
    result = run_toy(MODEL, guided("coupled"), seeds_from(12, 20_000), relaxation=BlockVerification())
    assert law_p_value(result.tokens, MODEL.enumerate_law(Warp())) > 1e-3


@pytest.mark.parametrize("redraw", ["fresh", "coupled"])
def test_recording_the_target_law_is_lossy(redraw):
    result = run_toy(MODEL, guided(redraw, growth_share=1.0, record="lossy"), seeds_from(13, 20_000))
    assert law_p_value(result.tokens, MODEL.enumerate_law(Warp())) < 1e-4


def test_shared_noise_gives_the_picture_of_plain_decoding_whatever_the_guide():
    plain = run_toy(MODEL, JacobiDrafter(1), range(3000))
    result = run_toy(MODEL, guided("gumbel", record="lossy"), range(3000))
    unguided = run_toy(MODEL, JacobiDrafter(5, "gumbel"), range(3000))
    assert torch.equal(plain.tokens, result.tokens)
    assert [t.nfe for t in result.traces] != [t.nfe for t in unguided.traces]


def test_only_a_lossy_record_that_is_used_is_not_exact():
    lossy, rule = guided("coupled", record="lossy"), EntropyRelaxation(0.5)
    assert not lossy.exact and not is_exact(Exact(), None, lossy) and not is_exact(rule, TVFilter(0.0), lossy)
    assert guided("coupled").exact and is_exact(Exact(), None, guided("coupled"))
    assert JacobiDrafter(record="lossy").exact and guided("fresh", window=1, record="lossy").exact
    assert is_exact(Exact(), None, guided("gumbel", record="lossy"))  # tokens are compared, not laws
    assert not is_exact(rule, None, guided("gumbel")) and not is_exact(
        BlockVerification(), None, guided("gumbel", record="lossy")
    )


def test_bad_knobs_are_refused():
    for knobs, message in (
        ({"guide": "grow"}, r"unknown guide 'grow' \(did you mean 'growth'\?\); known: none, growth"),
        ({"record": "losy"}, r"unknown record 'losy' \(did you mean 'lossy'\?\); known: exact, lossy"),
        ({"growth_weight": -1}, "growth_weight must be a number >= 0, got -1"),
        ({"growth_decay": 0.0}, "growth_decay must be a number > 0, got 0"),
        ({"growth_decay": 1.5}, "growth_decay must be between 0 and 1, got 1.5"),
        ({"growth_share": 0}, "growth_share must be a number > 0, got 0"),
        ({"growth_share": 2}, "growth_share must be between 0 and 1, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            JacobiDrafter(**knobs)
