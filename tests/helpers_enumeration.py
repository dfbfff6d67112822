"""The law of a whole Jacobi decode under any rule that judges drafts one by one, enumerated in plain numpy."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch

from csd_pipeline.targets.toy import ToyTarget


def jacobi_law(model: ToyTarget, window: int, accepted_mass: Callable) -> dict[tuple[int, ...], float]:
    """Law of the sequences that Jacobi decoding with independent redraws and uniform entry drafts emits.

    Args:
        model: the toy target, prompt 0.
        window: tokens per forward.
        accepted_mass: ``(p, q, fresh, slot, drafts) -> q f`` [V] for the draft in ``slot`` of ``drafts`` of them.
    """
    vocabulary, count = model.config.vocabulary, model.config.rows * model.config.columns
    table = model.table[0].double().softmax(-1).numpy()
    law: dict[tuple[int, ...], float] = defaultdict(float)

    def target(prefix):
        padded = torch.tensor([*prefix, *[0] * (count - len(prefix))])
        return table[int(model.prefix_index(padded, torch.tensor(len(prefix))))]

    def emit(committed, weights, weight, kept):
        for token, share in enumerate(weights / weights.sum()):
            if share > 0:
                advance((*committed, token), kept, weight * share)

    def advance(committed, kept, weight):
        if len(committed) == count:
            law[committed] += weight
            return
        length = min(window - 1, count - len(committed) - 1)
        laws = [*kept, *[np.full(vocabulary, 1 / vocabulary)] * (length - len(kept))][:length]
        for drafts in itertools.product(range(vocabulary), repeat=length):
            reach = weight * np.prod([q[x] for q, x in zip(laws, drafts, strict=True)])
            p = [target((*committed, *drafts[:j])) for j in range(length + 1)]
            for j, x in enumerate(drafts):
                mass = accepted_mass(p[j], laws[j], j >= len(kept), j, length)
                f = mass[x] / laws[j][x]
                if reach * (1 - f) > 0:
                    rest = np.clip(p[j] - mass, 0, None)
                    emit((*committed, *drafts[:j]), rest, reach * (1 - f), p[j + 1 :])
                reach *= f
            if reach > 0:
                emit((*committed, *drafts), p[length], reach, [])

    emit((), target(()), 1.0, [])
    return dict(law)
