import pytest
import torch
from helpers import SEED_BASES, OperatorLog, law_p_value, run_toy, seeds_from
from scipy import stats

from csd_pipeline.decoding import Warp
from csd_pipeline.decoding.noise import seed_words
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.drafters.siblings import Siblings
from csd_pipeline.relaxation import BlockVerification
from csd_pipeline.targets.base import Grid
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

MODEL = ToyTarget(2, 2, 3, scale=1.2, seed=1)  # 64 sequences of 6 tokens
THREE = ToyTarget(3, 2, 2, scale=1.2, seed=2)  # 81 of 4
LAW = [0.5, 0.3, 0.2, 0.0]
LONG = ToyTarget(3, 3, 3, classes=3, scale=1.5, seed=7)


def state_of(images: int) -> DecodingState:
    state = DecodingState.start(Grid(1, 8), 4, seed_words(list(range(images))))
    state.committed = torch.ones(images, dtype=torch.int64)
    return state


@pytest.mark.parametrize("by_race", [False, True])
def test_siblings_are_drawn_without_replacement_from_the_recorded_law(by_race):
    images, law = 40_000, torch.tensor(LAW)
    state = state_of(images)
    laws = law.expand(images, 2, 4)
    if by_race:
        first = (law.log() + state.noise.gumbel(state.upcoming(3)[:, :2], 4)).argmax(-1)
    else:
        first = torch.multinomial(law.expand(2 * images, 4), 1, generator=torch.Generator().manual_seed(1)).view(-1, 2)
    tree = Siblings(4, 2, by_race).tree(state, first, laws)
    assert torch.equal(tree.candidates[..., 0], first)
    assert tree.drawn[..., :3].all() and not tree.drawn[..., 3].any()  # the law has three tokens
    assert (tree.candidates[..., :3].sort(-1).values == torch.arange(3)).all()
    for slot in range(2):
        seen = torch.bincount(3 * tree.candidates[:, slot, 0] + tree.candidates[:, slot, 1], minlength=9)
        pairs = [(x, y) for x in range(3) for y in range(3) if x != y]
        expected = [images * LAW[x] * LAW[y] / (1 - LAW[x]) for x, y in pairs]
        assert stats.chisquare([seen[3 * x + y].item() for x, y in pairs], expected).pvalue > 1e-3


def test_siblings_change_from_pass_to_pass_but_not_with_the_batch():
    laws, first = torch.full((6, 2, 4), 0.25), torch.zeros(6, 2, dtype=torch.int64)
    state, siblings = state_of(6), Siblings(3, 2, by_race=False)
    candidates = siblings.tree(state, first, laws).candidates
    state.keep(torch.tensor([4]), [1])
    assert torch.equal(siblings.tree(state, first[:1], laws[:1]).candidates[0], candidates[4])
    several = [candidates[4]]
    for state.passes in range(1, 6):
        several.append(siblings.tree(state, first[:1], laws[:1]).candidates[0])
    assert len({tuple(c.flatten().tolist()) for c in several}) > 1


SIZES = [(3, 2, 1), (4, 2, 3), (5, 3, 2), (6, 4, 3)]


@pytest.mark.parametrize("redraw", REDRAWS)
@pytest.mark.parametrize(
    ("size", "model", "base"), list(zip(SIZES, (MODEL, THREE, MODEL, THREE), (*SEED_BASES, 7), strict=True))
)
def test_a_tree_samples_the_target_law(redraw, size, model, base):
    window, width, depth = size
    drafter = JacobiDrafter(window, redraw, tree_width=width, tree_depth=depth)
    result = run_toy(model, drafter, seeds_from(base, 20_000))
    assert law_p_value(result.tokens, model.enumerate_law(Warp())) > 1e-3
    chain = run_toy(model, JacobiDrafter(window, redraw), seeds_from(base, 2_000))
    passes = [sum(trace.nfe for trace in traces) / len(traces) for traces in (result.traces, chain.traces)]
    assert passes[0] < 0.97 * passes[1]


@pytest.mark.parametrize("redraw", ["coupled", "fresh"])
def test_a_guided_and_warped_tree_samples_the_target_law(redraw):
    warp = Warp(guidance_scale=2, temperature=0.9, top_p=0.9)
    drafter = JacobiDrafter(4, redraw, tree_width=3, tree_depth=2, guide="growth", growth_share=0.5)
    result = run_toy(THREE, drafter, seeds_from(21, 20_000), warp=warp)
    assert law_p_value(result.tokens, THREE.enumerate_law(warp)) > 1e-3


def test_batches_of_four_sample_the_target_law_and_images_equal_their_single_runs():
    drafter, law = JacobiDrafter(5, tree_width=2, tree_depth=3), MODEL.enumerate_law(Warp())
    seeds = seeds_from(2**40, 2_000)
    batches = [run_toy(MODEL, drafter, seeds[i : i + 4]).tokens for i in range(0, 2_000, 4)]
    assert law_p_value(torch.cat(batches), law) > 1e-3
    singles = [run_toy(MODEL, drafter, [seed]).tokens for seed in seeds[:600]]
    assert torch.equal(torch.cat(singles), torch.cat(batches)[:600]) and law_p_value(torch.cat(singles), law) > 1e-3


@pytest.mark.parametrize("redraw", REDRAWS)
def test_an_image_of_a_ragged_batch_equals_its_single_run(redraw):
    drafter, warp = JacobiDrafter(5, redraw, tree_width=2, tree_depth=3), Warp(guidance_scale=1.5, top_p=0.95)
    seeds, classes = seeds_from(2**63, 30), [i % 2 for i in range(30)]
    batch = run_toy(LONG, drafter, seeds, classes=classes, warp=warp, maps=True)
    assert len({trace.nfe for trace in batch.traces}) > 1
    for i, seed in enumerate(seeds):
        alone = run_toy(LONG, drafter, [seed], classes=[classes[i]], warp=warp, maps=True)
        mine, other = alone.traces[0], batch.traces[i]
        assert torch.equal(alone.tokens[0], batch.tokens[i]) and mine.accepted == other.accepted
        assert sum(a + 1 for a in mine.accepted) == 8 and mine.drift == 0
        for name, values in mine.maps.items():
            assert torch.allclose(values, other.maps[name], atol=1e-6, equal_nan=True), name


@pytest.mark.parametrize("size", [(4, 2, 2), (6, 3, 2), (16, 4, 3)])
def test_a_gumbel_tree_is_plain_decoding_token_for_token(size):
    window, width, depth = size
    warp, seeds = Warp(guidance_scale=2, temperature=0.8, top_k=2), seeds_from(31, 300)
    plain = run_toy(LONG, JacobiDrafter(1), seeds, warp=warp).tokens
    chain = run_toy(LONG, JacobiDrafter(window, "gumbel"), seeds, warp=warp)
    tree = run_toy(LONG, JacobiDrafter(window, "gumbel", tree_width=width, tree_depth=depth), seeds, warp=warp)
    assert torch.equal(tree.tokens, plain) and len(plain.unique(dim=0)) > 30
    assert sum(t.nfe for t in tree.traces) < sum(t.nfe for t in chain.traces)


@pytest.mark.parametrize("redraw", REDRAWS)
def test_one_candidate_or_no_level_is_no_tree(redraw):
    plain = run_toy(LONG, JacobiDrafter(5, redraw), range(500))
    for knobs in ({"tree_width": 1, "tree_depth": 3}, {"tree_width": 4, "tree_depth": 0}):
        drafter = JacobiDrafter(5, redraw, **knobs)
        result = run_toy(LONG, drafter, range(500))
        assert drafter.extra_tokens == 0 and torch.equal(result.tokens, plain.tokens)
        assert [trace.accepted for trace in result.traces] == [trace.accepted for trace in plain.traces]


class OneCandidate(JacobiDrafter):
    """Goes the way of a tree with nothing but the drafts of the window."""

    def begin(self, state):
        run = super().begin(state)
        run.siblings = Siblings(1, 3, self.shares_noise)
        return run


@pytest.mark.parametrize("redraw", REDRAWS)
def test_a_tree_of_one_candidate_decodes_like_the_window_bit_for_bit(redraw):
    plain, tree = (run_toy(LONG, kind(5, redraw), range(500), maps=True) for kind in (JacobiDrafter, OneCandidate))
    assert torch.equal(plain.tokens, tree.tokens)
    for mine, other in zip(plain.traces, tree.traces, strict=True):
        assert mine.accepted == other.accepted
        assert all(torch.equal(mine.maps[name].nan_to_num(-1), other.maps[name].nan_to_num(-1)) for name in mine.maps)


class ForcedAdapter(ToyAdapter):
    @property
    def grid(self) -> Grid:
        return Grid.with_line_ends(2, 2, mark=2)


@pytest.mark.parametrize("redraw", REDRAWS)
def test_forced_tokens_have_no_siblings_and_the_rest_keeps_its_law(redraw):
    model = ToyTarget(3, 2, 3, scale=1.2, seed=5)
    plain = run_toy(model, JacobiDrafter(1), seeds_from(3, 20_000), adapter=ForcedAdapter(model)).tokens
    drafter = JacobiDrafter(5, redraw, tree_width=3, tree_depth=3)
    tokens = run_toy(model, drafter, seeds_from(10**6, 20_000), adapter=ForcedAdapter(model)).tokens
    assert (tokens[:, [2, 5]] == 2).all()
    found, cell = torch.unique(torch.cat([plain, tokens]), dim=0, return_inverse=True)
    counts = torch.stack([torch.bincount(part, minlength=len(found)) for part in cell.split(20_000)])
    assert stats.chi2_contingency(counts[:, counts.sum(0) > 16].numpy()).pvalue > 1e-3


@pytest.mark.parametrize("redraw", REDRAWS)
def test_a_tree_makes_the_host_wait_no_more_often(redraw):
    drafter = JacobiDrafter(5, redraw, tree_width=3, tree_depth=2)
    run_toy(LONG, drafter, range(6))  # the shapes of its trees are built once
    with OperatorLog() as operators:
        result = run_toy(LONG, drafter, range(6))
    passes = max(trace.nfe for trace in result.traces) + 1
    assert len(operators.host_reads) <= passes + 2


def test_operators_do_not_multiply_with_images_or_candidates():
    counts = []
    for images, size in ((2, (2, 4)), (40, (2, 4)), (2, (2, 8))):
        state, drafts = state_of(images), torch.zeros(images, size[1], dtype=torch.int64)
        siblings = Siblings(3, size[0], by_race=False)
        laws = torch.full((*drafts.shape, 4), 0.25)
        siblings.tree(state, drafts, laws)
        with OperatorLog() as log:
            siblings.tree(state, drafts, laws)
        counts.append(len(log.names))
    assert len(set(counts)) == 1


def test_other_rules_are_refused_before_the_target_runs():
    with pytest.raises(ValueError, match=r"with the exact rule, got BlockVerification; use relaxation exact"):
        run_toy(LONG, JacobiDrafter(5, tree_depth=2), range(2), relaxation=BlockVerification())


def test_trees_that_do_not_fit_are_refused():
    for knobs, message in (
        ({"tree_depth": -1}, "tree_depth must be an integer >= 0, got -1"),
        ({"tree_depth": 5}, "tree_depth must be at most 4, got 5"),
        ({"tree_width": 0}, "tree_width must be an integer >= 1, got 0"),
        ({"tree_width": 9}, "tree_width must be at most 8, got 9"),
        ({"tree_depth": 3, "window": 3}, "tree_depth=3 needs a window of at least 4 tokens, got window=3"),
        ({"tree_depth": 2, "window": "auto"}, "window=auto chooses among windows without a tree; give a number"),
        ({"tree_depth": 4, "tree_width": 5}, "adds 776 tokens to every forward, at most 400"),
    ):
        with pytest.raises(ValueError, match=message):
            JacobiDrafter(**knobs)
    JacobiDrafter(4, tree_depth=3)
    assert JacobiDrafter(tree_depth=3).extra_tokens == 81
