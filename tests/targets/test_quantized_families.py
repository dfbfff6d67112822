"""8-bit weights of every family: the decoder's layers are packed, nothing else; saved and loaded, the same tokens.

Janus is in tests/pipeline. LlamaGen is a diffusers model, whose weights bitsandbytes packs on a GPU only: here it is
only looked at which of its modules would be packed.
"""

import pytest
import torch
from diffusers.quantizers.bitsandbytes import replace_with_bnb_linear
from families import FAMILIES
from torch import nn

from csd_pipeline import CSDAutoregressivePipeline, JacobiDrafter
from csd_pipeline.quantization import quantization_config
from csd_pipeline.targets import adapter_for


def quiet(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.mark.parametrize("name", ["chameleon", "lumina", "emu3"])
def test_layers_are_packed_and_come_back(name, tmp_path):
    family = FAMILIES[name]()
    whole = quiet(CSDAutoregressivePipeline(family.model, family.tokenizer, JacobiDrafter(window=4), None, None))
    whole.save_pretrained(tmp_path / "whole")
    packed = quiet(
        CSDAutoregressivePipeline.from_pretrained(tmp_path / "whole", quantization_config=quantization_config(8))
    )
    kept = adapter_for(family.model).full_precision
    assert kept
    wanted, inside = family.model.state_dict(), []
    for module_name, module in packed.target.named_modules():
        if isinstance(module, nn.Linear):
            inside.append(any(f"{module_name}.".startswith(f"{part}.") for part in kept))
            assert module.weight.dtype == (torch.float32 if inside[-1] else torch.int8), module_name
    assert any(inside) and not all(inside)
    for key, tensor in packed.target.state_dict().items():
        if any(key.startswith(f"{part}.") for part in kept):
            assert torch.equal(tensor, wanted[key]), key

    options = {"temperature": 0, "guidance_scale": 2.0}
    images = packed("a red cat", output_type="pt", **options).images
    assert torch.isfinite(images).all()
    packed.save_pretrained(tmp_path / "packed")
    again = quiet(CSDAutoregressivePipeline.from_pretrained(tmp_path / "packed"))
    assert torch.equal(again("a red cat", output_type="pt", **options).images, images)


@pytest.mark.parametrize("name", ["llamagen-text", "llamagen-class"])
def test_modules_of_llamagen_that_would_be_packed(name):
    model = FAMILIES[name]().model
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    kept = {name for name in linear if f"{name}.".startswith(("output.", "cls_embedding.", "vq."))}
    config = quantization_config(8, library="diffusers").quant_mapping["target"]
    replace_with_bnb_linear(model, config.llm_int8_skip_modules, quantization_config=config)
    replaced = {name for name, module in model.named_modules() if type(module).__name__ == "Linear8bitLt"}
    assert replaced == linear - kept and "output" in kept
    assert {"layers.0.attention.wqkv", "layers.1.feed_forward.w2"} <= replaced


def test_a_config_for_the_other_library_is_refused_before_weights_are_read(tmp_path):
    family = FAMILIES["llamagen-class"]()
    CSDAutoregressivePipeline(family.model, None, None, None, None).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"use quantization_config\(..., library='diffusers'\)"):
        CSDAutoregressivePipeline.from_pretrained(tmp_path, quantization_config=quantization_config(8))
