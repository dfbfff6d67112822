import pytest
import torch

from csd_pipeline.evaluation.gpu_suite.random_target import random_target
from csd_pipeline.evaluation.gpu_suite.shapes import SHAPES


@pytest.mark.parametrize(("name", "layers", "head"), [("1b", 1.23e9, 0.04e9), ("7b", 6.07e9, 0.08e9)])
def test_published_shapes_have_the_published_sizes(name, layers, head):
    from transformers import JanusForConditionalGeneration

    with torch.device("meta"):
        model = JanusForConditionalGeneration(SHAPES[name].config()).model
    counts = [
        sum(p.numel() for p in part.parameters()) for part in (model.language_model.layers, model.generation_head)
    ]
    assert counts == [pytest.approx(layers, rel=0.01), pytest.approx(head, rel=0.1)]
    assert model.generation_head.vision_head.out_features == 16384
    assert sum(p.numel() for p in model.parameters()) < 1.1 * (sum(counts) + 102400 * SHAPES[name].width)


def test_weights_are_those_of_the_seed_in_the_asked_type():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (random_target(SHAPES["tiny"], "cpu", torch.bfloat16) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before) and torch.get_default_dtype() is torch.float32
    weights, again = one.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert {tensor.dtype for tensor in one.model.parameters()} == {torch.bfloat16}
    matrix = one.model.model.language_model.layers[0].mlp.up_proj.weight.float()
    assert matrix.std().item() == pytest.approx(0.02, rel=0.1)
    assert one.model.model.language_model.norm.weight.float().eq(1).all()
    assert one.warp.guided and one.prompt.rows()[0].shape == (2, 32) and one.tokens == 64
