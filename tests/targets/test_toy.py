import itertools

import pytest
import torch
from helpers import open_toy

from csd_pipeline.decoding import Warp
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

MODEL = ToyTarget(3, 2, 2, classes=3)


def test_every_prefix_has_its_own_law():
    indices = [
        int(MODEL.prefix_index(torch.tensor([*prefix, *[0] * (4 - length)]), torch.tensor(length)))
        for length in range(4)
        for prefix in itertools.product(range(3), repeat=length)
    ]
    assert sorted(indices) == list(range(MODEL.table.shape[1]))


@pytest.mark.parametrize("warp", [Warp(), Warp(guidance_scale=2, top_k=2)])
def test_enumerated_law_is_the_product_of_the_conditionals(warp):
    law = MODEL.enumerate_law(warp, prompt=1)
    assert len(law) == 81 and sum(law.values()) == pytest.approx(1, abs=1e-6)
    sequence, expected = (2, 0, 1, 1), 1.0
    for length, token in enumerate(sequence):
        index = MODEL.prefix_index(torch.tensor(sequence), torch.tensor(length))
        logits = MODEL.table[1, index]
        if warp.guided:
            logits = MODEL.table[2, index] + 2 * (logits - MODEL.table[2, index])
            logits[logits < logits.topk(2).values[-1]] = -torch.inf
        expected *= logits.double().softmax(-1)[token].item()
    assert law[sequence] == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_session_answers_windows_and_rollbacks_from_the_table():
    adapter = ToyAdapter(MODEL)
    session = open_toy(adapter, [0, 1], guided=True, window=4)
    assert torch.equal(session.prefill(), MODEL.table[[0, 1, 2, 2], :1])
    session.step(torch.tensor([[2, 1, 0], [0, 0, 0]]), torch.tensor([1, 1]), 1)
    logits = session.step(torch.tensor([[2, 2], [1, 1]]), torch.tensor([2, 1]), 2)
    prefixes = [[(2, 2), (2, 2, 2)], [(1,), (1, 1)]]
    for row, prompt in enumerate((0, 1, 2, 2)):
        for slot, prefix in enumerate(prefixes[row % 2]):
            index = MODEL.prefix_index(torch.tensor([*prefix, 0, 0, 0][:4]), torch.tensor(len(prefix)))
            assert torch.equal(logits[row, slot], MODEL.table[prompt, index])
    session.keep(torch.tensor([1]))
    logits = session.step(torch.tensor([[1]]), torch.tensor([2]), 2)
    index = MODEL.prefix_index(torch.tensor([1, 1, 0, 0]), torch.tensor(2))
    assert torch.equal(logits[:, 0], MODEL.table[[1, 2], index])
