import itertools

import pytest
import torch
from helpers import (
    SEED_BASES,
    ScriptedNoise,
    draws_from,
    law_p_value,
    noise_of,
    random_laws,
    run_toy,
    seeds_from,
    window_of,
)

from csd_pipeline.alignment import TVFilter
from csd_pipeline.decoding import Purpose, Warp
from csd_pipeline.decoding.verification import verify
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import BlockVerification, Exact
from csd_pipeline.relaxation.block import run_ratio
from csd_pipeline.targets.toy import ToyTarget


def pass_probabilities(p, q, drafts, starts):
    """By the definition, one draft after the other: w and h of every run, and w before every slot; float64."""
    w, before, after, passes = 1.0, [], [], []
    for i, x in enumerate(drafts):
        w = 1.0 if starts[i] else w
        before.append(w)
        w = min(1.0, w * float(p[i][x] / q[i][x]))
        after.append(w)
        if i + 1 == len(drafts) or starts[i + 1]:
            passes.append(w)
        else:
            excess = float((w * p[i + 1] - q[i + 1]).clamp(min=0).sum())
            passes.append(1.0 if excess + 1 - w == 0 else excess / (excess + 1 - w))
    return before, after, passes


def accepted_by_loop(uniform, passes, starts):
    """Blocks one after the other; the longest run that passes in the first block whose end fails."""
    taken, length = 0, len(passes)
    for start in [i for i in range(length) if starts[i]]:
        end = next((i for i in range(start + 1, length) if starts[i]), length)
        runs = [i + 1 for i in range(start, end) if uniform[i] < passes[i]]
        taken = runs[-1] if runs else taken
        if taken != end:
            break
    return taken


@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("alignment_filter", [None, TVFilter(0.25)])
def test_verify_equals_a_loop_in_plain_python(length, alignment_filter):
    images, slots, vocabulary = 300, 5, 5
    p, other = (random_laws(images * slots, vocabulary, seed=s).view(images, slots, vocabulary) for s in (3, 4))
    q = 0.6 * p + 0.4 * other
    lengths, drafts = torch.arange(images) % (slots + 1), draws_from(q)
    window = window_of(p, q, drafts, lengths=lengths)
    noise, draw = noise_of(window)
    outcome = verify(window, BlockVerification(length), alignment_filter, noise, draw)
    uniform = noise.uniform(window.positions, Purpose.VERIFY, draw)
    far = 0.5 * (p - q).abs().sum(-1) >= 0.25
    for b in range(images):
        count = int(lengths[b])
        block = length or slots
        starts = [i % block == 0 or bool(alignment_filter and far[b, i]) for i in range(count)]
        p64, q64 = p[b].double(), q[b].double()
        _, after, passes = pass_probabilities(p64, q64, drafts[b, :count], starts)
        assert outcome.accepted[b] == accepted_by_loop(uniform[b], passes, starts)
        assert outcome.acceptance[b, :count].tolist() == pytest.approx(after, abs=1e-5)
    assert len(outcome.accepted.unique()) == slots + 1


@pytest.mark.parametrize("starts", [(1, 0, 0), (1, 1, 1), (1, 0, 1)])
def test_the_scheme_has_the_target_law(starts):
    """Every draft, every outcome: runs, repairs and completion by the target add up to the joint law."""
    chain, q = (random_laws(count, 3, zeros=0, seed=sum(starts)).double() for count in (40, 3))
    chain, q = (laws / laws.sum(-1, keepdim=True) for laws in (chain, q))
    table = dict(zip((s for n in range(4) for s in itertools.product(range(3), repeat=n)), chain, strict=True))
    law = dict.fromkeys(itertools.product(range(3), repeat=4), 0.0)

    def complete(prefix, weight):
        if len(prefix) == 4:
            law[prefix] += weight
        else:
            for token in range(3):
                complete((*prefix, token), weight * float(table[prefix][token]))

    for drafts in itertools.product(range(3), repeat=3):
        weight = float(q[range(3), list(drafts)].prod())
        p = [table[drafts[:i]] for i in range(3)]
        before, _, passes = pass_probabilities(p, q, drafts, starts)
        for flags in itertools.product((0, 1), repeat=3):
            chance = weight
            for h, flag in zip(passes, flags, strict=True):
                chance *= h if flag else 1 - h
            taken = accepted_by_loop([0.0 if flag else 2.0 for flag in flags], [0.5] * 3, starts)
            if taken == 3:
                complete(drafts, chance)
            elif chance > 0:
                rest = (before[taken] * p[taken] - q[taken]).clamp(min=0)
                for token in range(3):
                    complete((*drafts[:taken], token), chance * float(rest[token] / rest.sum()))
    for sequence, probability in law.items():
        target = 1.0
        for i in range(4):
            target *= float(table[sequence[:i]][sequence[i]])
        assert probability == pytest.approx(target, abs=1e-9)


def test_the_next_token_comes_from_the_weighted_residual():
    """w = .5 after the first draft: [.5 p - q]+ = (.15, .1, 0), where the plain residual would be (.4, .3, 0)."""
    count = 3000
    p = torch.tensor([[0.3, 0.5, 0.2], [0.5, 0.4, 0.1]]).expand(count, 2, 3)
    q = torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]).expand(count, 2, 3)
    spread = (torch.arange(count) + 0.5) / count
    uniform = torch.tensor([0.3, 0.999]).expand(count, 2)
    window = window_of(p, q, drafts=torch.tensor([[0, 2]]).expand(count, 2))
    outcome = verify(window, BlockVerification(), None, ScriptedNoise(VERIFY=uniform, RESIDUAL=spread), 0)
    # w_1 = .5, S_1 = [.25 - .1]+ + [.2 - .1]+ = .25, h_1 = .25 / .75
    assert (outcome.accepted == 1).all() and outcome.acceptance[0].tolist() == pytest.approx([0.5, 0.0625])
    share = torch.bincount(outcome.next_token, minlength=3) / count
    assert share.tolist() == pytest.approx([0.6, 0.4, 0], abs=2 / count)
    late = verify(window, BlockVerification(), None, ScriptedNoise(VERIFY=uniform + 0.04, RESIDUAL=spread), 0)
    assert (late.accepted == 0).all() and (late.next_token == 1).all()  # .34 > 1/3


def test_running_products_at_the_edges():
    inf = torch.inf
    ratio = torch.tensor([[0.5, 3.0, 0.5], [inf, 0.0, inf], [1e30, 1e30, 1e-30], [0.0, 5.0, 2.0], [0.0, 0.5, 4.0]])
    starts = torch.tensor([[1, 0, 0]] * 4 + [[1, 1, 0]]).bool()
    expected = [[0.5, 1, 0.5], [1, 0, 0], [1, 1, 1e-30], [0, 0, 0], [0, 0.5, 1]]
    assert torch.equal(run_ratio(ratio, starts), torch.tensor(expected))


def test_impossible_drafts_end_the_run():
    p = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]]).expand(50, 2, 2)
    q = torch.full((50, 2, 2), 0.5)
    window = window_of(p, q, drafts=torch.zeros(50, 2, dtype=torch.int64))
    outcome = verify(window, BlockVerification(), None, ScriptedNoise(RESIDUAL=0.3), 0)  # VERIFY = 0 passes anything
    assert (outcome.accepted == 0).all() and (outcome.next_token == 1).all()


MODEL = ToyTarget(2, 2, 3, scale=1.2, seed=1)  # 64 sequences
COUNT = 20_000


def decoded(rule, redraw, base=7, alignment_filter=None, count=COUNT):
    drafter = JacobiDrafter(5, redraw)
    return run_toy(MODEL, drafter, seeds_from(base, count), relaxation=rule, alignment_filter=alignment_filter)


@pytest.mark.parametrize(
    ("rule", "redraw", "alignment_filter", "base"),
    [
        (BlockVerification(), "fresh", None, SEED_BASES[0]),
        (BlockVerification(), "gumbel", None, SEED_BASES[1]),
        (BlockVerification(2), "coupled", None, SEED_BASES[2]),
        (BlockVerification(), "coupled", TVFilter(0.2), SEED_BASES[0]),
    ],
)
def test_whole_decodes_have_the_target_law(rule, redraw, alignment_filter, base):
    result = decoded(rule, redraw, base, alignment_filter)
    assert law_p_value(result.tokens, MODEL.enumerate_law(Warp())) > 1e-3
    assert all(trace.drift == 0 for trace in result.traces)


class TailKept(BlockVerification):
    """Lets the drafter keep drafts the decision has read."""

    def decide(self, *arguments):
        decision = super().decide(*arguments)
        decision.spoiled = None
        return decision


@pytest.mark.parametrize("redraw", ["coupled", "gumbel"])
def test_a_tail_that_was_read_must_not_be_kept(redraw):
    assert law_p_value(decoded(TailKept(), redraw).tokens, MODEL.enumerate_law(Warp())) < 1e-6


def test_drafts_of_a_failing_block_are_redrawn_independently_whatever_the_drafter():
    fresh, coupled = (decoded(BlockVerification(), redraw, count=3000) for redraw in ("fresh", "coupled"))
    assert torch.equal(fresh.tokens, coupled.tokens)


def test_blocks_save_forwards():
    passes = [
        sum(trace.nfe for trace in decoded(rule, "fresh", count=6000).traces) / 6000
        for rule in (Exact(), BlockVerification(2), BlockVerification())
    ]
    assert passes[0] > passes[1] + 0.02 and passes[1] > passes[2] + 0.02


def test_only_the_failing_block_is_spoiled():
    p, q = torch.tensor([0.5, 0.5]).expand(1, 6, 2), torch.tensor([0.9, 0.1]).expand(1, 6, 2)
    window = window_of(p, q, drafts=torch.zeros(1, 6, dtype=torch.int64))
    noise = ScriptedNoise(VERIFY=[[0.9, 0.1, 0.9, 0.9, 0.0, 0.0]], RESIDUAL=0.0)
    outcome = verify(window, BlockVerification(2), None, noise, 0)
    assert outcome.accepted.tolist() == [2]
    assert outcome.spoiled.tolist() == [[False, False, True, True, False, False]]


def test_blocks_of_one_are_plain():
    assert BlockVerification(1).plain and BlockVerification(1).exact and not BlockVerification(2).plain
    assert BlockVerification().exact and not BlockVerification().plain


@pytest.mark.parametrize("length", [-1, 1.5, "2", None, True])
def test_bad_length_is_refused(length):
    with pytest.raises(ValueError, match=rf"length must be an integer >= 0, got {length!r}"):
        BlockVerification(length)
