import math

import pytest
import torch
from helpers import run_toy

from csd_pipeline.decoding import Warp
from csd_pipeline.evaluation.likelihood import nats_per_token
from csd_pipeline.targets.base import Grid, PromptBatch
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget


@pytest.mark.parametrize("warp", [Warp(), Warp(guidance_scale=2.5, temperature=0.7)])
def test_it_is_the_enumerated_probability_of_the_picture(warp):
    model = ToyTarget(vocabulary=3, rows=2, columns=2, classes=2)
    adapter, ids = ToyAdapter(model), torch.tensor([[0]])
    ones = torch.ones_like(ids)
    prompt = PromptBatch(ids, ones, adapter.unconditional(ids), ones) if warp.guided else PromptBatch(ids, ones)
    law = model.enumerate_law(warp)
    for tokens in run_toy(model, seeds=range(5), warp=warp).tokens:
        expected = -math.log(law[tuple(tokens.tolist())]) / 4
        assert nats_per_token(adapter, prompt, tokens[None], warp) == pytest.approx(expected, rel=1e-5)


def test_truncation_and_greedy_decoding_leave_it_finite():
    model = ToyTarget()
    prompt = PromptBatch(torch.tensor([[0]]), torch.tensor([[1]]))
    tokens = torch.tensor([[0, 1, 2, 0]])
    plain = nats_per_token(ToyAdapter(model), prompt, tokens, Warp())
    for warp in (Warp(top_k=1), Warp(top_p=0.1), Warp(temperature=0)):
        assert nats_per_token(ToyAdapter(model), prompt, tokens, warp) == plain


def test_forced_tokens_are_left_out():
    class Forcing(ToyAdapter):
        grid = Grid(2, 2, forced=torch.tensor([-1, -1, 3, -1]))  # a mark beyond the codes that have logits

    model, tokens = ToyTarget(vocabulary=3, rows=2, columns=2), torch.tensor([[0, 2, 3, 1]])
    index = model.prefix_index(tokens.expand(4, 4), torch.arange(4))
    laws = model.table[0, index].softmax(-1)
    expected = -sum(math.log(laws[place, tokens[0, place]]) for place in (0, 1, 3)) / 3
    prompt = PromptBatch(torch.tensor([[0]]), torch.tensor([[1]]))
    assert nats_per_token(Forcing(model), prompt, tokens, Warp()) == pytest.approx(expected, rel=1e-5)
