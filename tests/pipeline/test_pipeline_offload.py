"""Offloading: hooks reach the modules the decoding loop calls, although it never calls the target's own forward.

There is no accelerator here: accelerate's hooks are attached for the CPU and the calls that would move weights counted.
"""

import accelerate
import pytest
import torch
from diffusers.hooks import apply_group_offloading
from tiny_janus import PROMPT, draw
from transformers import JanusForConditionalGeneration

from csd_pipeline import CSDAutoregressivePipeline

USED = ("language_model", "generation_embeddings", "generation_aligner", "generation_head", "vqmodel")


@pytest.fixture
def moves(monkeypatch):
    """Devices the target is sent to, in order: that is all model offloading does."""
    devices, move = [], JanusForConditionalGeneration.to

    def to(self, *args, **kwargs):
        device = args[0] if args else kwargs.get("device")
        if isinstance(device, (str, torch.device)):
            devices.append(str(device))
        return move(self, *args, **kwargs)

    monkeypatch.setattr(JanusForConditionalGeneration, "to", to)
    return devices


def test_model_offload_moves_the_target_in_and_out_of_every_call(fresh_pipeline, expected, moves):
    pipeline = fresh_pipeline
    pipeline.enable_model_cpu_offload(device="cpu")
    assert isinstance(pipeline.target._hf_hook, accelerate.hooks.CpuOffload)
    for _ in range(2):
        moves.clear()
        assert torch.equal(draw(pipeline), expected)
        assert moves[0] == "cpu:0" and set(moves[1:]) == {"cpu"}  # to the execution device, then back
    assert pipeline._execution_device == torch.device("cpu:0")


def test_model_offload_may_be_enabled_twice(fresh_pipeline, expected):
    for _ in range(2):
        fresh_pipeline.enable_model_cpu_offload(device="cpu")
        assert torch.equal(draw(fresh_pipeline), expected)
        assert len(fresh_pipeline._all_hooks) == 1


def test_memory_goes_back_when_a_callback_raises(fresh_pipeline, moves):
    fresh_pipeline.enable_model_cpu_offload(device="cpu")
    moves.clear()
    with pytest.raises(ZeroDivisionError):
        draw(fresh_pipeline, callback_on_step_end=lambda *args: 1 / 0)
    assert moves[0] == "cpu:0" and set(moves[1:]) == {"cpu"}


def test_sequential_offload_loads_every_module_the_loop_calls(fresh_pipeline, shared):
    target = fresh_pipeline.target
    for _ in range(2):  # twice, as users do
        accelerate.cpu_offload(target, torch.device("cpu"))
        assert {parameter.device.type for parameter in target.parameters()} == {"meta"}
        loaded = set()
        watch(target, loaded)
        pictures = [p(PROMPT, seed=7, guidance_scale=2.0, output_type="pt").images for p in (fresh_pipeline, shared)]
        assert torch.equal(*pictures)
        assert loaded == set(USED)
        assert {parameter.device.type for parameter in target.parameters()} == {"meta"}
        accelerate.hooks.remove_hook_from_module(target, recurse=True)


def watch(target, loaded):
    """Record which of the parts the loop uses had a hook put real weights in place."""
    for name, module in target.model.named_modules():
        hook = getattr(module, "_hf_hook", None)
        if getattr(hook, "offload", False):
            part, load = name.split(".")[0], hook.pre_forward

            def pre_forward(module, *args, _part=part, _load=load, **kwargs):
                loaded.add(_part)
                return _load(module, *args, **kwargs)

            hook.pre_forward = pre_forward


@pytest.mark.parametrize(
    "level", [{"offload_type": "leaf_level"}, {"offload_type": "block_level", "num_blocks_per_group": 1}]
)
def test_group_offloading_changes_nothing(fresh_pipeline, expected, level, monkeypatch):
    with monkeypatch.context() as patch:
        # diffusers 0.37 looks up the machine's accelerator even where it loads to the CPU
        patch.setattr(torch.accelerator, "current_accelerator", lambda *args, **kwargs: torch.device("cpu"))
        apply_group_offloading(fresh_pipeline.target, onload_device=torch.device("cpu"), **level)
    assert torch.equal(draw(fresh_pipeline), expected)


def test_a_device_map_changes_nothing(saved, expected):
    assert torch.equal(draw(CSDAutoregressivePipeline.from_pretrained(saved, device_map="cpu")), expected)
