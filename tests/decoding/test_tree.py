import pytest
import torch
from helpers_tree import CPU, paths_to

from csd_pipeline.decoding.tree import DraftTree, extra_nodes, tree_shape


def test_a_small_tree_by_hand():
    """Window a b c; a and b have siblings A and B. Tokens: last, a, b, c, A, then B below a, b and B below A."""
    shape = tree_shape(2, 2, 3, CPU)
    assert shape.place.tolist() == [0, 1, 2, 3, 1, 2, 2, 2]
    assert shape.children[:2].tolist() == [[1, 4], [2, 5]] and shape.children[4].tolist() == [6, 7]
    assert not shape.children[[2, 3, 5, 6, 7]].any()
    assert paths_to(shape) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 4], [0, 1, 5], [0, 4, 6], [0, 4, 7]]
    tree = DraftTree(shape, torch.tensor([[[5, 6], [7, 8]]]), torch.ones(1, 2, 2, dtype=torch.bool))
    assert tree.tokens(torch.tensor([[9]]), torch.tensor([[5, 7, 1]])).tolist() == [[9, 5, 7, 1, 6, 8, 7, 8]]


@pytest.mark.parametrize(("width", "depth", "nodes"), [(4, 3, 84), (3, 3, 39), (2, 1, 2), (1, 3, 3), (4, 0, 0)])
def test_every_node_above_the_leaves_has_all_candidates(width, depth, nodes):
    assert extra_nodes(width, depth) == nodes - depth
    shape = tree_shape(width, depth, 5, CPU)
    assert len(shape.place) == 1 + 5 + nodes - depth
    runs = {
        tuple(
            number
            for above, below in zip(path, path[1:], strict=False)
            for number, child in enumerate(shape.children[above].tolist())
            if child == below
        )
        for path in paths_to(shape)
        if len(path) == depth + 1
    }
    assert len(runs) == width**depth and all(len(run) == depth for run in runs)


def test_a_tree_of_one_candidate_is_the_window():
    shape = tree_shape(1, 3, 5, CPU)
    assert torch.equal(shape.visible, torch.ones(6, 6).tril().bool()) and shape.place.tolist() == list(range(6))
