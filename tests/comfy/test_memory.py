"""Targets under ComfyUI's own memory management: its modules without a server, in a process of their own."""

import os
import subprocess
import sys

import pytest
from server import REPOSITORY, comfy_home

SCRIPT = """
import gc, sys, weakref
tree, repository = sys.argv[1:]
sys.path[:0] = [tree, repository]
sys.argv = ["main.py", "--cpu", "--disable-api-nodes"]
import comfy.options
comfy.options.enable_args_parsing()
import utils.extra_config  # as main.py: before another module of that name is found
import comfy.model_management as management
import folder_paths
folder_paths.add_model_folder_path("csd", "/nowhere")
from comfy_nodes import generation, memory, methods, sockets
from csd_pipeline import JacobiDrafter

generation.send_to_node = lambda *event: None  # there is no page
load_models, asked = management.load_models_gpu, []
def recording(models, **options):
    asked.append(options["memory_required"])
    return load_models(models, **options)
management.load_models_gpu = recording

def draw(target, drafter=None):
    parts = methods.complete_method(drafter, None, None)
    tokens, _ = generation.draw(
        target, sockets.Prompt("red apple on white", ""), parts, "1", seed=3, num_images_per_prompt=1
    )
    return tokens.ids

target = memory.load("embedded", "auto")
model = target.pipeline.target
assert not asked, "loading only reads"
assert target.patcher.model_size() >= sum(p.numel() * p.element_size() for p in model.parameters())

first = draw(target)
text = model.config.text_config
cache = 2 * 2 * text.num_hidden_layers * text.hidden_size * first.shape[1] * model.dtype.itemsize
assert asked[0] > cache, "room for weights and cache is asked for before the run"
assert len(management.current_loaded_models) == 1
assert {p.device for p in model.parameters()} == {management.get_torch_device()}

management.unload_all_models()
assert not management.current_loaded_models
assert {p.device for p in model.parameters()} == {management.unet_offload_device()}
assert (draw(target) == first).all()

assert (draw(target, JacobiDrafter(32, "auto")) == first).all()
(record,) = target.pipeline._automatic_drafting._records.values()
passes = record.passes[32]
assert passes > 0
draw(target, JacobiDrafter(32, "auto"))
assert record.passes[32] == 2 * passes, "a run does not know what an earlier one learned"

gone = weakref.ref(model)
del target, model
second = memory.load("embedded", "auto")
gc.collect()
assert gone() is None, "a model nobody uses is kept"
assert (draw(second) == first).all()
print("all held")
"""


@pytest.mark.parametrize("tree", ["ComfyUI-0.16.3", "ComfyUI"])
def test_the_host_makes_room_unloads_and_forgets_our_models(tree):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", SCRIPT, str(comfy_home() / tree), str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.endswith("all held\n"), done.stderr[-3000:]
