"""Offloading and device maps, every family: what the loop calls outside a forward is reached by accelerate's hooks.

There is no accelerator here: the hooks work for the processor and keep weights on the meta device or on disk between.
"""

import accelerate
import pytest
import torch
from families import FAMILIES
from torch import nn

from csd_pipeline import CSDAutoregressivePipeline, JacobiDrafter
from csd_pipeline.targets import adapter_for

PROMPTS = {"llamagen-class": "class 3"}


def pipeline_of(family):
    pipeline = CSDAutoregressivePipeline(family.model, family.tokenizer, JacobiDrafter(window=4), None, None)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw(pipeline, name, size, output_type):
    height, width = size or (None, None)
    options = {"height": height, "width": width, "seed": 3, "guidance_scale": 2.0, "output_type": output_type}
    return pipeline(PROMPTS.get(name, "a red cat"), num_images_per_prompt=2, **options).images


def sequential(model, folder):
    accelerate.cpu_offload(model, torch.device("cpu"))


def half_on_disk(model, folder):
    """As a device map: the whole stays on the processor, half of its blocks and the rest of the modules on disk."""
    blocks = next(module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == 2)
    name = next(name for name, module in model.named_modules() if module is blocks[0])
    tops = dict.fromkeys((name.partition(".")[0] for name, _ in model.named_parameters()), "cpu")
    prefix = name.partition(".")[0]
    tops |= {prefix: "cpu", name: "disk"} | {top: "disk" for top in tops if top != prefix}
    accelerate.dispatch_model(model, tops, main_device="cpu", offload_dir=str(folder))


@pytest.mark.parametrize("place", [sequential, half_on_disk])
@pytest.mark.parametrize("name", FAMILIES)
def test_weights_that_are_elsewhere_draw_the_same_pictures(name, place, tmp_path):
    family = FAMILIES[name]()
    pipeline = pipeline_of(family)
    tokens, pixels = (draw(pipeline, name, family.size, kind) for kind in ("latent", "pt"))
    codebook = adapter_for(family.model).codebook
    place(family.model, tmp_path)
    away = [name for name, p in family.model.named_parameters() if p.device.type == "meta"]
    assert away
    assert torch.equal(draw(pipeline, name, family.size, "latent"), tokens)
    assert torch.equal(draw(pipeline, name, family.size, "pt"), pixels)
    assert torch.equal(adapter_for(family.model).codebook, codebook)
    assert [name for name, p in family.model.named_parameters() if p.device.type == "meta"] == away


@pytest.mark.parametrize("name", FAMILIES)
def test_model_offload_sends_the_target_in_and_back(name, monkeypatch):
    family = FAMILIES[name]()
    pipeline = pipeline_of(family)
    tokens, devices, move = draw(pipeline, name, family.size, "latent"), [], type(family.model).to

    def to(self, *args, **kwargs):
        device = args[0] if args else kwargs.get("device")
        if isinstance(device, (str, torch.device)):
            devices.append(str(device))
        return move(self, *args, **kwargs)

    monkeypatch.setattr(type(family.model), "to", to)
    pipeline.enable_model_cpu_offload(device="cpu")
    devices.clear()
    assert torch.equal(draw(pipeline, name, family.size, "latent"), tokens)
    assert devices[0] == "cpu:0" and set(devices[1:]) == {"cpu"}
