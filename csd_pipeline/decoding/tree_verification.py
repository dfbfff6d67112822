"""Walk down a tree of candidates: at every node the first accepted sibling, then on along the window behind it.

Candidates are tested in the order they were drawn, each against what is left of the target law after those before it
were rejected and against the draft law without them. That is exact. Testing each against the target law and taking the
longest surviving path is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from .indexing import at_slot, count_up, take
from .noise import IndexedNoise, Purpose
from .sampling import draw_by_inverse_cdf, draw_by_race, residual
from .tree import DraftTree
from .verification import Verification, leading, relaxes, verify_shared_noise
from .window import Window


def check_tree(drafter, relaxation, alignment_filter) -> None:
    """Raise ValueError for a tree with a rule that does not make the decisions of plain speculative decoding."""
    if drafter.extra_tokens and relaxes(relaxation, alignment_filter):
        raise ValueError(
            "a tree of drafts is verified candidate by candidate with the exact rule, got "
            f"{type(relaxation).__name__}; use relaxation exact, or a drafter with tree_depth=0"
        )


def verify_tree(
    window: Window, tree: DraftTree, noise: IndexedNoise, draw: Tensor | int, share_noise: bool
) -> tuple[Window, Verification, Tensor]:
    """Accept a path of the tree and, where that is the main path to its end, a prefix of the drafts behind it.

    Args:
        window: drafts and draft laws of this pass; ``target_laws`` [B, T, V] follow all T tokens of the forward.
        tree: its candidates.
        noise: indexed noise of the images.
        draw: number of the pass, [] int64 or an int.
        share_noise: compare candidates with the token plain decoding would draw, as :func:`verify_shared_noise` does.

    Returns:
        the window along the path that was taken, as it would have been without a tree; what became of it; and the path
        [B, D], tokens of the forward. Below a rejection the path goes on with first siblings.
    """
    by_race = _race(window, tree, noise) if share_noise else _rejection(window, tree, noise, draw)
    path, reached, left, acceptance = _walk(window, tree, by_race)
    taken = _along(window, tree, path)
    depth = tree.shape.depth
    bottom, main = reached == depth, path[:, -1] == depth
    last = taken.drafts.shape[1] - 1
    if share_noise:
        outcome = verify_shared_noise(taken, noise)
        accepted = torch.where(bottom & ~main, depth, outcome.accepted)  # laws behind another leaf are not known
        return taken, replace(outcome, accepted=accepted, next_token=at_slot(outcome.choice, accepted)), path

    uniform = noise.uniform(window.positions, Purpose.VERIFY, draw)[:, :-1]
    kept = (uniform < taken.vanilla) & taken.valid
    accepted = torch.where(bottom, depth + torch.where(main, leading(kept[:, depth:]), 0), reached)
    slot = accepted.clamp(max=last)
    rest = residual(at_slot(taken.target_laws, slot), at_slot(taken.q, slot))
    rest = torch.where(bottom[:, None], rest, at_slot(left, reached.clamp(max=depth - 1)))
    position, law = at_slot(window.positions, accepted), at_slot(taken.target_laws, accepted)
    bonus = draw_by_race(law, noise.gumbel(position[:, None], law.shape[-1])[:, 0])
    repaired = draw_by_inverse_cdf(rest, at_slot(noise.uniform(window.positions, Purpose.RESIDUAL, draw), accepted))
    # Behind another leaf than the main one the draft that follows was never a context here, but it is still a draw from
    # its law: kept as often as it may be, it is the context the drafts behind it were made for.
    same = bottom & ~main & at_slot(kept, slot)
    token = torch.where(same, at_slot(taken.drafts, slot), repaired)
    outcome = Verification(
        accepted=accepted,
        next_token=torch.where(accepted == taken.lengths, bonus, token),
        acceptance=torch.cat([acceptance, taken.vanilla[:, depth:]], 1),
        drift=torch.zeros_like(taken.vanilla),
    )
    return taken, outcome, path


def first_accepted(
    p: Tensor, q: Tensor, candidates: Tensor, drawn: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Recursive rejection sampling among the candidates of one node (K = 1: plain speculative decoding).

    Args:
        p, q: [B, V] target law at the node, draft law of its children.
        candidates: [B, K] int64, drawn from ``q`` without replacement, in that order.
        drawn: [B, K] bool, False where there is no candidate.
        uniform: [B, K] in [0, 1).

    Returns:
        number of the accepted candidate [B] (K: none), unnormalised law [B, V] of the token drawn when all are
        rejected, and the probability [B] that one of these candidates is accepted.
    """
    width = candidates.shape[1]
    chosen, chance, rest = torch.full_like(candidates[:, 0], width), 0.0, p
    for number in range(width):
        token, real = candidates[:, number : number + 1], drawn[:, number]
        if number:
            p, q = _normalised(rest), _normalised(q.scatter(1, candidates[:, number - 1 : number], 0.0))
        accept = (p.gather(1, token) / q.gather(1, token)).clamp(max=1.0).nan_to_num_(0.0).squeeze(1)
        accept = torch.where(real, accept, 0.0)
        chosen = torch.where((chosen == width) & (uniform[:, number] < accept), number, chosen)
        chance = accept if number == 0 else chance + (1 - chance) * accept
        rest = torch.where(real[:, None], residual(p, q), rest)
    return chosen, rest, chance


def _normalised(weights: Tensor) -> Tensor:
    """Laws [B, V]; no weight at all stays no weight (then nothing is drawn from it either)."""
    return (weights / weights.sum(-1, keepdim=True)).nan_to_num_(0.0)


Judge = Callable[[int, Tensor], tuple[Tensor, Tensor, Tensor]]  # level, law at the node [B, V] -> as first_accepted


def _rejection(window: Window, tree: DraftTree, noise: IndexedNoise, draw: Tensor | int) -> Judge:
    depth, width = tree.shape.depth, tree.shape.width
    positions = window.positions[:, :depth]
    uniform = noise.uniform(window.positions, Purpose.VERIFY, draw)[:, :depth, None]
    if width > 1:
        uniform = torch.cat([uniform, noise.sibling_uniform(positions, Purpose.VERIFY, draw, width - 1)], -1)
    drawn = tree.drawn & window.valid[:, :depth, None]

    def judge(level: int, law: Tensor):
        return first_accepted(law, window.q[:, level], tree.candidates[:, level], drawn[:, level], uniform[:, level])

    return judge


def _race(window: Window, tree: DraftTree, noise: IndexedNoise) -> Judge:
    depth, width = tree.shape.depth, tree.shape.width
    gumbel = noise.gumbel(window.positions[:, :depth], window.q.shape[-1])
    drawn = tree.drawn & window.valid[:, :depth, None]

    def judge(level: int, law: Tensor):
        token = draw_by_race(law, gumbel[:, level])
        same = (tree.candidates[:, level] == token[:, None]) & drawn[:, level]
        found = same.any(-1)
        return torch.where(found, same.to(torch.uint8).argmax(-1), width), law, found.float()

    return judge


def _walk(window: Window, tree: DraftTree, judge: Judge) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Path [B, D], accepted levels [B], law of the token after a rejection [B, D, V] and acceptance [B, D] by level."""
    shape = tree.shape
    node = torch.zeros_like(window.lengths)
    reached, path, left, acceptance = node, [], [], []
    for level in range(shape.depth):
        chosen, rest, chance = judge(level, at_slot(window.target_laws, node))
        chosen = torch.where((reached == level) & (chosen < shape.width), chosen, -1)
        reached = reached + (chosen >= 0)
        node = shape.children[node, chosen.clamp(min=0)]
        for values, value in zip((path, left, acceptance), (node, rest, chance), strict=True):
            values.append(value)
    return torch.stack(path, 1), reached, torch.stack(left, 1), torch.stack(acceptance, 1)


def _along(window: Window, tree: DraftTree, path: Tensor) -> Window:
    """The window whose first drafts are those of the path [B, D], with the laws after each of its tokens."""
    depth = tree.shape.depth
    behind = count_up(window.drafts.shape[1] + 1, path.device)[depth + 1 :].expand(len(path), -1)
    node = torch.cat([torch.zeros_like(path[:, :1]), path, behind], 1)
    laws = take(window.target_laws, node)
    drafts = torch.cat([tree.tokens(path[:, :0], window.drafts).gather(1, path - 1), window.drafts[:, depth:]], 1)
    taken = replace(window, target_laws=laws, drafts=drafts)
    taken.positions = window.positions  # the same tensor: its noise is not made twice
    return taken
