"""Trees of drafts on a session: every path against a reference that knows neither tree nor cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from csd_pipeline.decoding.tree import DraftTree, TreeShape, tree_shape

CPU = torch.device("cpu")


def paths_to(shape: TreeShape) -> list[list[int]]:
    """For every token of a forward: the tokens that lead to it, itself included, from the last committed one on."""
    return [sorted(row.nonzero()[:, 0].tolist(), key=lambda token: int(shape.place[token])) for row in shape.visible]


def random_tree(shape: TreeShape, images: int, codes: int, generator: torch.Generator) -> tuple[Tensor, DraftTree]:
    """Drafts [B, L] and a tree of distinct candidates that begins with them."""
    drafts = torch.randint(codes, (images, shape.length), generator=generator)
    order = torch.rand(images, shape.depth, codes, generator=generator).scatter(2, drafts[:, : shape.depth, None], 2.0)
    candidates = order.argsort(-1, descending=True)[..., : shape.width]
    return drafts, DraftTree(shape, candidates, torch.ones_like(candidates, dtype=torch.bool))


def check_every_path(
    session,
    codes: int,
    reference: Callable[[int, Tensor], Tensor],
    size: tuple[int, int, int] = (3, 2, 4),
    passes: int = 2,
    stops: int = 0,
    seed: int = 0,
    atol: float = 1e-4,
) -> int:
    """Decode random trees and compare all their laws.

    Args:
        session: opened with room for the tree, not yet used.
        codes: tokens are drawn below this.
        reference: ``(image, tokens [n]) -> [rows of the image, n + 1, K]`` logits after every token.
        size: width, depth, drafts.
        passes: forwards with a tree.
        stops: number of the token of the forward at which image 0 stops in the first pass; the others and the later
            passes follow in order.
        seed: of the tokens.
        atol: allowed difference of logits.

    Returns:
        number of tokens of a forward.
    """
    shape, generator = tree_shape(*size, CPU), torch.Generator().manual_seed(seed)
    paths, images = paths_to(shape), session.images
    rows = [torch.arange(image, session.rows, images) for image in range(images)]
    committed = [torch.randint(codes, (1,), generator=generator) for _ in range(images)]
    with torch.no_grad():
        session.prefill()
        for number in range(passes):
            drafts, tree = random_tree(shape, images, codes, generator)
            tokens = tree.tokens(torch.stack([row[-1:] for row in committed]), drafts)
            counts = torch.tensor([len(row) for row in committed])
            logits = session.step(tokens, counts, int(counts.max()), shape)
            taken = []
            for image, row in enumerate(committed):
                for path in paths:
                    if shape.children[path[-1]].any() or path[-1] in range(shape.depth, shape.length):
                        continue  # checked on the way to a leaf
                    expected = reference(image, torch.cat([row, tokens[image, path[1:]]]))[:, len(row) :]
                    assert torch.allclose(logits[rows[image]][:, path], expected, atol=atol), (number, image, path)
                stop = paths[(stops + number * images + image) % len(paths)][1:]
                taken.append(_with_first_siblings(shape, stop))
                following = torch.randint(codes, (1,), generator=generator)
                committed[image] = torch.cat([row, tokens[image, stop], following])
            session.adopt(counts, torch.tensor(taken))
    return len(paths)


def _with_first_siblings(shape: TreeShape, path: list[int]) -> list[int]:
    path = path[: shape.depth]
    while len(path) < shape.depth:
        path = [*path, int(shape.children[path[-1] if path else 0, 0])]
    return path
