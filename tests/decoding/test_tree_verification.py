import itertools

import pytest
import torch
from helpers import T3_P, T3_Q, draws_from, noise_of, random_laws, window_of
from helpers_tree import CPU, paths_to

from csd_pipeline.alignment import TVFilter
from csd_pipeline.decoding.noise import IndexedNoise, Purpose, seed_words
from csd_pipeline.decoding.sampling import draw_by_inverse_cdf, draw_by_race, residual
from csd_pipeline.decoding.tree import DraftTree, tree_shape
from csd_pipeline.decoding.tree_verification import check_tree, first_accepted, verify_tree
from csd_pipeline.decoding.verification import verify, verify_shared_noise
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import BlockVerification, EntropyRelaxation, Exact


def every_order(q: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All ordered draws of ``width`` tokens without replacement, [n, width], and their probabilities [n]."""
    orders, chances = [], []
    for order in itertools.permutations([x for x in range(len(q)) if q[x] > 0], width):
        left, chance = q.double(), 1.0
        for token in order:
            chance = chance * left[token] / left.sum()
            left = left.scatter(0, torch.tensor([token]), 0.0)
        orders.append(order)
        chances.append(chance)
    return torch.tensor(orders), torch.tensor(chances)


def passing(p, q, width):
    """Per ordered draw: its probability, the tokens [n, width], with what probability each passes its test if it is
    reached [n, width], and the law left when all fail [n, V]."""
    p, q = torch.as_tensor(p, dtype=torch.float32), torch.as_tensor(q, dtype=torch.float32)
    orders, chances = every_order(q, width)
    laws = (p.expand(len(orders), -1), q.expand(len(orders), -1))
    tests, before = [], torch.zeros(len(orders))
    for count in range(1, width + 1):
        drawn = torch.ones(len(orders), count, dtype=torch.bool)
        _, left, chance = first_accepted(*laws, orders[:, :count], drawn, torch.ones(len(orders), count))
        tests.append(((chance - before) / (1 - before).clamp(min=1e-9)).double())
        before = chance
    left = left.double()
    return chances, orders, torch.stack(tests, 1), left / left.sum(1, keepdim=True)


def emitted_in_order(p, q, width) -> torch.Tensor:
    chances, orders, tests, left = passing(p, q, width)
    law, reached = torch.zeros(len(p), dtype=torch.float64), chances
    for token, test in zip(orders.T, tests.T, strict=True):
        law = law.index_add(0, token, reached * test)
        reached = reached * (1 - test)
    return law + (reached[:, None] * left).sum(0)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_first_accepted_sibling_has_the_target_law(width):
    law = torch.tensor(T3_P, dtype=torch.float64)
    assert torch.allclose(emitted_in_order(T3_P, T3_Q, width), law, atol=1e-6)
    assert torch.allclose(emitted_in_order(T3_P, (1 / 3,) * 3, width), law, atol=1e-6)
    for seed in range(40):
        p, q = random_laws(1, 6, seed=seed)[0], random_laws(1, 6, zeros=0.2, seed=100 + seed)[0]
        if int((q > 0).sum()) >= width:
            assert torch.allclose(emitted_in_order(p, q, width), p.double(), atol=1e-5), seed


def test_two_siblings_are_accepted_nine_times_in_ten():
    """Against six times in ten for one draft: laws (.5, .3, .2) and (.2, .2, .6)."""
    for width, accepted in ((1, 0.6), (2, 0.9)):
        chances, _, tests, _ = passing(T3_P, T3_Q, width)
        assert (chances * (1 - (1 - tests).prod(1))).sum().item() == pytest.approx(accepted, abs=1e-6)


def test_taking_the_longest_surviving_path_is_biased():
    """Children of token 0 always survive, those of the others never: a 0 that survives wins, whatever came before."""
    chances, orders, tests, left = passing(T3_P, (1 / 3,) * 3, 2)
    law = torch.zeros(3, dtype=torch.float64)
    for chance, (first, second), (pass_first, pass_second), rest in zip(chances, orders, tests, left, strict=True):
        both, neither = pass_first * pass_second, (1 - pass_first) * (1 - pass_second)
        law[0 if 0 in (first, second) else first] += chance * both
        law[first] += chance * (pass_first - both)
        law[second] += chance * (pass_second - both)
        law += chance * neither * rest
    assert law.tolist() == pytest.approx([0.75, 0.15, 0.10], abs=1e-6)
    assert emitted_in_order(T3_P, (1 / 3,) * 3, 2).tolist() == pytest.approx(T3_P, abs=1e-6)


def test_a_law_of_fewer_tokens_than_candidates():
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.0, 1.0, 0.0]])
    drawn = torch.tensor([[True, False, False]])
    chosen, rest, chance = first_accepted(p, q, torch.tensor([[1, 0, 0]]), drawn, torch.tensor([[0.9, 0.0, 0.0]]))
    assert chosen.item() == 3 and chance.item() == pytest.approx(0.3)
    assert torch.allclose(rest / rest.sum(), torch.tensor([[5 / 7, 0, 2 / 7]]))


def window_and_tree(width, depth, images=300, length=4, vocabulary=6, seed=0):
    """Random laws after every token of a forward, drafts and siblings from the draft laws, windows of any length."""
    shape = tree_shape(width, depth, length, CPU)
    laws = random_laws(images * len(shape.place), vocabulary, seed=seed).view(images, -1, vocabulary)
    q = random_laws(images * length, vocabulary, zeros=0.2, seed=seed + 1).view(images, length, vocabulary)
    drafts, rest = draws_from(q, seed), q[:, :depth]
    candidates, drawn = [drafts[:, :depth]], [torch.ones(images, depth, dtype=torch.bool)]
    for number in range(1, width):
        rest = rest.scatter(2, candidates[-1][..., None], 0.0)
        drawn.append(rest.sum(-1) > 0)
        candidates.append(draws_from(torch.where(drawn[-1][..., None], rest, 1.0), seed + number))
    lengths = torch.randint(length + 1, (images,), generator=torch.Generator().manual_seed(seed))
    window = window_of(laws[:, :length], q, drafts, lengths=lengths)
    window.target_laws = laws
    return window, DraftTree(shape, torch.stack(candidates, 2), torch.stack(drawn, 2))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_tree_of_one_candidate_is_verified_bit_for_bit_like_the_window(depth):
    window, tree = window_and_tree(1, depth)
    noise, _ = noise_of(window)
    for share, plain in (
        (False, verify(window, Exact(), None, noise, 3)),
        (True, verify_shared_noise(window, noise)),
    ):
        taken, outcome, path = verify_tree(window, tree, noise, 3, share)
        assert torch.equal(path, torch.arange(1, depth + 1).expand_as(path))
        assert torch.equal(taken.target_laws, window.target_laws) and torch.equal(taken.drafts, window.drafts)
        for name in ("accepted", "next_token", "drift"):
            assert torch.equal(getattr(outcome, name), getattr(plain, name)), name
        assert torch.equal(outcome.acceptance[window.valid], plain.acceptance[window.valid])
        assert 0 < outcome.accepted.float().mean() < 4


@pytest.mark.parametrize(("width", "depth"), [(2, 1), (3, 2), (2, 4), (4, 3)])
def test_a_tree_is_verified_like_a_loop_in_plain_python(width, depth):
    window, tree = window_and_tree(width, depth)
    noise, _ = noise_of(window)
    taken, outcome, path = verify_tree(window, tree, noise, 2, share_noise=False)
    uniform = noise.uniform(window.positions, Purpose.VERIFY, 2)
    more = noise.sibling_uniform(window.positions[:, :depth], Purpose.VERIFY, 2, width - 1)
    tests = torch.cat([uniform[:, :depth, None], more], 2)
    repairs = noise.uniform(window.positions, Purpose.RESIDUAL, 2)
    gumbel = noise.gumbel(window.positions, 6)
    kinds = set()
    for i in range(len(window.drafts)):
        node, nodes, tokens, left, length = 0, [], [], None, int(window.lengths[i])
        for level in range(min(depth, length)):
            p, q = window.target_laws[i, node], window.q[i, level]
            for number in range(width):
                token = int(tree.candidates[i, level, number])
                if q.sum() == 0 or not tree.drawn[i, level, number]:
                    continue
                if tests[i, level, number] < p[token] / q[token]:
                    break
                left = residual(p, q)
                p, q = left / left.sum(), q.scatter(0, torch.tensor([token]), 0.0)
                q = q / q.sum() if q.sum() > 0 else q
            else:
                break
            node, left = int(tree.shape.children[node, number]), None
            nodes.append(node)
            tokens.append(token)
        stopped = left is not None
        while not stopped and depth <= len(tokens) < length and node == len(tokens):
            token, slot = int(window.drafts[i, len(tokens)]), len(tokens)
            p, q = window.target_laws[i, node], window.q[i, slot]
            stopped = not uniform[i, slot] < p[token] / q[token]
            left = residual(p, q) if stopped else None
            if not stopped:
                tokens.append(token)
                node += 1
        slot = len(tokens)
        if slot == length:
            following = draw_by_race(window.target_laws[i, node], gumbel[i, slot])
            kinds.add("bonus")
        elif left is not None:
            following = draw_by_inverse_cdf(left, repairs[i, slot])
            kinds.add("left")
        else:  # behind another leaf: the draft of the window there, kept or repaired
            p, q, following = window.target_laws[i, node], window.q[i, slot], window.drafts[i, slot]
            kept = uniform[i, slot] < p[following] / q[following]
            following = following if kept else draw_by_inverse_cdf(residual(p, q), repairs[i, slot])
            kinds.add(("leaf", bool(kept)))
        assert outcome.accepted[i] == slot and outcome.next_token[i] == following, i
        assert taken.drafts[i, :slot].tolist() == tokens
        assert path[i, : len(nodes)].tolist() == nodes
        assert torch.equal(taken.target_laws[i, slot], window.target_laws[i, node])
    assert kinds >= {"bonus", "left"} | ({("leaf", True), ("leaf", False)} if depth < 4 else set())


def test_below_a_rejection_the_path_goes_on_with_first_siblings():
    window, tree = window_and_tree(3, 3)
    noise, _ = noise_of(window)
    taken, outcome, path = verify_tree(window, tree, noise, 2, share_noise=False)
    for i, tau in enumerate(outcome.accepted.tolist()):
        for level in range(tau, 3):
            above = int(path[i, level - 1]) if level else 0
            assert path[i, level] == tree.shape.children[above, 0]
            assert taken.drafts[i, level] == window.drafts[i, level]
            assert torch.equal(taken.target_laws[i, level + 1], window.target_laws[i, path[i, level]])
        assert paths_to(tree.shape)[path[i, -1]][1:] == path[i].tolist()
        # behind the tree the window is what it was
        assert torch.equal(taken.target_laws[i, 4:], window.target_laws[i, 4:5])
        assert torch.equal(taken.drafts[i, 3:], window.drafts[i, 3:])


def test_shared_noise_takes_the_sibling_plain_decoding_would_draw():
    window, tree = window_and_tree(2, 2, vocabulary=3)
    noise, _ = noise_of(window)
    taken, outcome, path = verify_tree(window, tree, noise, 2, share_noise=True)
    gumbel = noise.gumbel(window.positions, 3)
    for i in range(len(window.drafts)):
        node, tokens, length = 0, [], int(window.lengths[i])
        while True:
            slot = len(tokens)
            token = int(draw_by_race(window.target_laws[i, node], gumbel[i, slot]))
            if slot < min(2, length):
                found = [n for n in range(2) if tree.drawn[i, slot, n] and tree.candidates[i, slot, n] == token]
                node = int(tree.shape.children[node, found[0]]) if found else None
            else:
                found = slot < length and node == slot and token == window.drafts[i, slot]
                node = slot + 1
            if not found:
                break
            tokens.append(token)
        assert outcome.accepted[i] == len(tokens) and outcome.next_token[i] == token, i
        assert taken.drafts[i, : len(tokens)].tolist() == tokens
    assert len(outcome.accepted.unique()) == 5 and (path[:, -1] != 2).any()


def test_siblings_have_noise_of_their_own():
    tabled, plain = IndexedNoise(seed_words([1, 2**63]), 9), IndexedNoise(seed_words([1, 2**63]))
    position = torch.arange(3).expand(2, 3)
    for draw in (0, 17, 2):
        for purpose in (Purpose.VERIFY, Purpose.ENTRY):
            more = tabled.sibling_uniform(position, purpose, draw, 4)
            assert torch.equal(more, plain.sibling_uniform(position, purpose, draw, 4))
            assert torch.equal(more[..., :2], tabled.sibling_uniform(position, purpose, draw, 2))
            assert torch.equal(more[1:], plain.keep(torch.tensor([1])).sibling_uniform(position[1:], purpose, draw, 4))
            every = torch.cat([more, plain.uniform(position, purpose, draw)[..., None]], -1)
            assert every.shape == (2, 3, 5) and len(every.unique()) == 30
    values = plain.sibling_uniform(torch.arange(4000).expand(2, -1), Purpose.VERIFY, 1, 3)
    assert values.min() >= 0 and values.max() < 1 and values.mean().item() == pytest.approx(0.5, abs=0.01)
    assert values.flatten(0, 1).T.corrcoef().fill_diagonal_(0).abs().max() < 0.05


def test_rules_other_than_the_exact_one_are_refused_by_name():
    tree, relaxed = JacobiDrafter(8, tree_depth=2), EntropyRelaxation(0.5)
    for rule in (relaxed, BlockVerification()):
        with pytest.raises(ValueError, match=rf"exact rule, got {type(rule).__name__}; use relaxation exact, or a"):
            check_tree(tree, rule, None)
    for drafter, rule, alignment_filter in (
        (tree, Exact(), None),
        (tree, relaxed, TVFilter(0.0)),
        (JacobiDrafter(8), relaxed, None),
        (JacobiDrafter(8, tree_depth=2, tree_width=1), relaxed, None),
    ):
        check_tree(drafter, rule, alignment_filter)
