"""A small tree of candidates at the first positions of the window, and the order its tokens have in a forward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class TreeShape:
    """Which token of a forward descends from which: T = 1 + ``length`` + E tokens.

    Token 0 is the last committed one. Tokens 1 .. ``length`` are the drafts of the window, each the child of the one
    before; the first ``depth`` of them are the main path. The E other nodes of the tree follow, level by level.

    Args:
        width: K, candidates of every node above the leaves; the first of each is a draft of the window.
        depth: D, levels.
        length: L, drafts of the window, at least D.
        place: [T] int64, positions behind the last committed token.
        visible: [T, T] bool, row t: the tokens of this forward that token t attends to (its ancestors and itself).
        children: [T, K] int64, the children of every node, 0 where there are none.
        level, sibling: [E] int64, level and number (1 .. K-1, or 0 below another sibling) of the E other nodes.
    """

    width: int
    depth: int
    length: int
    place: Tensor
    visible: Tensor
    children: Tensor
    level: Tensor
    sibling: Tensor


@dataclass
class DraftTree:
    """The candidates of one pass; all nodes of a level have the same ones.

    Args:
        shape: the order of the tokens.
        candidates: [B, D, K] int64, drawn without replacement from the draft law of their position; the first is the
            draft of the window.
        drawn: [B, D, K] bool, False where the law had fewer tokens than K.
    """

    shape: TreeShape
    candidates: Tensor
    drawn: Tensor

    def tokens(self, last: Tensor, drafts: Tensor) -> Tensor:
        """[B, T] tokens of the forward: the last committed one [B, 1], the drafts [B, L], the other nodes."""
        return torch.cat([last, drafts, self.candidates[:, self.shape.level, self.shape.sibling]], 1)


def extra_nodes(width: int, depth: int) -> int:
    """E, nodes besides the drafts of the window."""
    return sum(width**level for level in range(1, depth + 1)) - depth


@cache
def tree_shape(width: int, depth: int, length: int, device: torch.device) -> TreeShape:
    """Built once and kept on the device: a copy in every pass would make the host wait; captured ones read it there."""
    parent, others = [0, *range(length)], []
    children, nodes = {}, [0]
    for level in range(depth):
        below = []
        for node in nodes:
            children[node] = []
            for number in range(width):
                if node == level and number == 0:  # the main path: token `level` holds level `level - 1`
                    children[node].append(level + 1)
                else:
                    children[node].append(len(parent))
                    parent.append(node)
                    others.append((level, number))
            below += children[node]
        nodes = below
    count = len(parent)
    visible = torch.eye(count, dtype=torch.bool)
    for token in range(1, count):  # a parent comes before its children
        visible[token] |= visible[parent[token]]
    table = torch.zeros(count, width, dtype=torch.int64)
    for node, below in children.items():
        table[node] = torch.tensor(below)
    level, sibling = torch.tensor(others, dtype=torch.int64).view(-1, 2).unbind(1)
    tensors = (visible.sum(1) - 1, visible, table, level, sibling)
    return TreeShape(width, depth, length, *(tensor.to(device) for tensor in tensors))
