"""Candidates of a tree of drafts: siblings of the first drafts, drawn without replacement from the same laws."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.checks import require_integer
from csd_pipeline.decoding.noise import Purpose
from csd_pipeline.decoding.sampling import draw_by_inverse_cdf
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.tree import DraftTree, extra_nodes, tree_shape

from .window_choice import AUTO

DEEPEST, WIDEST, MOST_NODES = 4, 8, 400


def check_tree_size(width: int, depth: int, window: int | str) -> None:
    """Raise ValueError for a tree that is too large, or does not fit the window."""
    for name, value, low, high in (("tree_depth", depth, 0, DEEPEST), ("tree_width", width, 1, WIDEST)):
        require_integer(name, value, low)
        if value > high:
            raise ValueError(f"{name} must be at most {high}, got {value}")
    if depth == 0:
        return
    if window == AUTO:
        raise ValueError("window=auto chooses among windows without a tree; give a number, or tree_depth=0")
    if depth >= window:
        raise ValueError(
            f"tree_depth={depth} needs a window of at least {depth + 1} tokens, got window={window}; widen the window, "
            "or take a smaller tree_depth"
        )
    nodes = extra_nodes(width, depth)
    if nodes > MOST_NODES:
        raise ValueError(
            f"tree_width={width} with tree_depth={depth} adds {nodes} tokens to every forward, at most {MOST_NODES} "
            "are allowed; make one of them smaller"
        )


class Siblings:
    """Draws the second and further candidates of the first positions, anew in every pass.

    Args:
        width: K, candidates of every node.
        depth: D, positions that have several.
        by_race: with the noise plain decoding would use (the K best of its race) instead of noise of their own.
    """

    def __init__(self, width: int, depth: int, by_race: bool):
        self.width, self.depth, self.by_race = width, depth, by_race

    def tree(self, state: DecodingState, drafts: Tensor, laws: Tensor) -> DraftTree:
        """The tree that begins with the first of the drafts [B, L], which have the laws [B, L, V]."""
        shape = tree_shape(self.width, min(self.depth, drafts.shape[1]), drafts.shape[1], drafts.device)
        positions = state.upcoming(drafts.shape[1] + 1)[:, : shape.depth]
        first, laws = drafts[:, : shape.depth, None], laws[:, : shape.depth]
        rest = laws.scatter(-1, first, 0.0)  # K - 1 more from what is left
        more, drawn = self._best(state, positions, rest) if self.by_race else self._drawn(state, positions, rest)
        return DraftTree(shape, torch.cat([first, *more], -1), torch.cat([torch.ones_like(first) > 0, *drawn], -1))

    def _best(self, state: DecodingState, positions: Tensor, rest: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        race = rest.log() + state.noise.gumbel(positions, rest.shape[-1])
        race = torch.nn.functional.pad(race, (0, max(0, self.width - 1 - rest.shape[-1])), value=-torch.inf)
        score, token = race.topk(self.width - 1, dim=-1)
        return [torch.where(score > -torch.inf, token, 0)], [score > -torch.inf]

    def _drawn(self, state: DecodingState, positions: Tensor, rest: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        uniform = state.noise.sibling_uniform(positions, Purpose.ENTRY, state.passes, self.width - 1)
        tokens, drawn = [], []
        for number in range(self.width - 1):
            token = draw_by_inverse_cdf(rest, uniform[..., number])[..., None]
            drawn.append(rest.gather(-1, token) > 0)
            tokens.append(token)
            rest = rest.scatter(-1, token, 0.0)
        return tokens, drawn
