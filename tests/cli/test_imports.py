"""What a first `csd generate` imports: nothing but what its libraries' own base classes already bring."""

import json
import os
import subprocess
import sys

import pytest
from command_results import REPOSITORY

# Packages that are no dependency of ours but that torch, diffusers and transformers import wherever they find them, and
# those of our extras: hidden here, so that the run is that of a plain installation on every machine.
NOT_DEPENDENCIES = ("scipy", "sklearn", "pandas", "onnx", "matplotlib", "torchvision", "IPython", "pytest")

# One process: the libraries' base classes first, then the command; what the command adds is ours to answer for.
CODE = f"""
import json, sys
for name in {NOT_DEPENDENCIES!r}:
    sys.modules[name] = None  # import says: no such package
from diffusers import ConfigMixin, DiffusionPipeline, ModelMixin, SchedulerMixin
from diffusers.image_processor import VaeImageProcessor
from transformers import AutoTokenizer, JanusForConditionalGeneration, PreTrainedTokenizerFast
before = set(sys.modules)
from csd_pipeline.cli import main
sys.argv = ["csd", "generate", "red apple on white", "--seed", "1", "-o", "apple.png"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
with open("added.json", "w") as file:
    json.dump(sorted(set(sys.modules) - before), file)
"""


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """Names of the modules that `csd generate` imports beyond the base classes; the picture it drew is there."""
    folder = tmp_path_factory.mktemp("first")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "apple.png").is_file()
    return json.loads((folder / "added.json").read_text(encoding="utf-8"))


def test_no_other_pipeline_model_or_scheduler_of_the_libraries(added):
    families = ("diffusers.pipelines.", "diffusers.models.", "diffusers.schedulers.", "transformers.pipelines")
    assert [name for name in added if name.startswith(families)] == []
    models = {name.split(".")[2] for name in added if name.startswith("transformers.models.")}
    assert models <= {"auto", "janus", "siglip", "llama"}


def test_no_compiler_distributed_runtime_or_plotting(added):
    heavy = ("torch._inductor.", "torch._dynamo.", "torch.distributed.", "torch.utils.tensorboard", "torch.onnx")
    assert [name for name in added if name.startswith(heavy)] == []


def test_no_command_but_its_own_and_no_training(added):
    ours = {name for name in added if name.startswith("csd_pipeline.")}
    assert "csd_pipeline.pipeline" in ours  # the list is that of a run that really drew
    others = ("csd_pipeline.training", "csd_pipeline.evaluation", "csd_pipeline.cli.bench")
    unneeded = (*others, "csd_pipeline.cli.info", "csd_pipeline.cli.doctor", "csd_pipeline.cli.train")
    assert [name for name in ours if name.startswith(unneeded)] == []


def test_every_other_package_is_a_dependency(added):
    packages = {name.partition(".")[0] for name in added} - set(sys.stdlib_module_names)
    declared = {"csd_pipeline", "torch", "diffusers", "transformers", "accelerate", "safetensors", "numpy", "PIL"}
    theirs = {"tokenizers", "huggingface_hub", "tqdm", "regex", "jinja2", "packaging", "yaml"}
    assert packages <= declared | {"click"} | theirs
