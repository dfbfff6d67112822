"""`device_map`: the target on one device or split, from a saved folder and a transformers checkpoint; else refused."""

import pytest
import torch
from tiny_janus import draw, tiny_tokenizer

from csd_pipeline import CSDAutoregressivePipeline, EntropyRelaxation, JacobiDrafter, TVFilter

ON_DISK = ("model.language_model.layers.0", "model.generation_head", "model.vqmodel")


def split(model):
    """A map that names every part once."""
    tops = {name for name, _ in model.model.named_children() if name != "language_model"}
    inside = {
        "language_model.embed_tokens",
        "language_model.norm",
        "language_model.layers.0",
        "language_model.layers.1",
    }
    names = ["lm_head", *(f"model.{name}" for name in (tops | inside))]
    return {name: "disk" if name in ON_DISK else "cpu" for name in names}


def load(source, **options):
    parts = {"drafter": JacobiDrafter(window=4), "relaxation": EntropyRelaxation(lam=0.5)}
    parts |= {"alignment_filter": TVFilter(delta=0.7), "tokenizer": tiny_tokenizer()}
    pipeline = CSDAutoregressivePipeline.from_pretrained(source, **parts, **options)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.mark.parametrize("device_map", ["cpu", torch.device("cpu"), {"": "cpu"}, "auto"])
@pytest.mark.parametrize("layout", ["saved", "stock"])
def test_one_device(layout, device_map, expected, request):
    assert torch.equal(draw(load(request.getfixturevalue(layout), device_map=device_map)), expected)


@pytest.mark.parametrize("layout", ["saved", "stock"])
@pytest.mark.parametrize("dtype", [None, "auto"])
def test_a_model_split_between_memory_and_disk(layout, dtype, expected, shared, request, tmp_path):
    placement = {"device_map": split(shared.target), "offload_folder": tmp_path}
    pipeline = load(request.getfixturevalue(layout), dtype=dtype, **placement)
    away = {name for name, parameter in pipeline.target.named_parameters() if parameter.device.type == "meta"}
    assert away and all(name.startswith(ON_DISK) for name in away)
    assert torch.equal(draw(pipeline), expected)
    pixels = [draw(p, output_type="pt") for p in (pipeline, shared)]
    assert torch.equal(*pixels)
    assert {n for n, p in pipeline.target.named_parameters() if p.device.type == "meta"} == away


@pytest.mark.parametrize("device_map", ["ballanced", "layers", {}, 1.5])
@pytest.mark.parametrize("layout", ["saved", "stock"])
def test_anything_else_is_refused_with_the_supported_maps(layout, device_map, request):
    with pytest.raises(ValueError, match="device_map must be one of auto, balanced, balanced_low_0, sequential"):
        load(request.getfixturevalue(layout), device_map=device_map)
