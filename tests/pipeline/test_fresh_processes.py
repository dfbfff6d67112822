"""Every documented way of loading, each in an interpreter of its own, draws the same tokens; none opens a socket."""

import json
import os
import subprocess
import sys
from pathlib import Path

import diffusers
import pytest
from packaging.version import Version

PACKAGE_ROOT = Path(__file__).parents[2]

# Sockets are blocked, and a TensorFlow that breaks on import lies on the path.
PRELUDE = """
import json, socket, sys
def no_connection(*args, **kwargs):
    raise AssertionError("tried to open a connection")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = no_connection
"""
DRAW = """
pipeline.set_progress_bar_config(disable=True)
options = {"seed": [7, 8], "num_images_per_prompt": 2, "guidance_scale": 2.0, "output_type": "latent"}
output = pipeline("a red cube on grass", **options)
print(json.dumps({"tokens": output.images.tolist(), "class": type(pipeline).__module__, "early": early}))
"""
ROUTES = {
    "our class, saved folder": """
early = "diffusers" in sys.modules
from csd_pipeline import CSDAutoregressivePipeline
pipeline = CSDAutoregressivePipeline.from_pretrained({saved!r})
""",
    "our class, stock checkpoint": """
from csd_pipeline import CSDAutoregressivePipeline, EntropyRelaxation, JacobiDrafter, TVFilter
early = False
parts = dict(drafter=JacobiDrafter(window=4), relaxation=EntropyRelaxation(lam=0.5))
parts |= dict(alignment_filter=TVFilter(delta=0.7))
pipeline = CSDAutoregressivePipeline.from_pretrained({stock!r}, **parts)
""",
    "diffusers with trust, nothing imported": """
from diffusers import DiffusionPipeline
early = "csd_pipeline" in sys.modules
pipeline = DiffusionPipeline.from_pretrained({saved!r}, trust_remote_code=True)
""",
    "our package imported, plain folder": """
import csd_pipeline
early = "diffusers" in sys.modules or "torch" in sys.modules
from diffusers import DiffusionPipeline
pipeline = DiffusionPipeline.from_pretrained({plain!r})
""",
    "our package imported after diffusers, plain folder": """
import diffusers
import csd_pipeline
early = "csd_pipeline.pipeline" in sys.modules
pipeline = diffusers.DiffusionPipeline.from_pretrained({plain!r})
""",
}


def start(code, tmp_path):
    """A process of its own with the package on its path and nothing cached from others."""
    broken = tmp_path / "path" / "tensorflow"
    broken.mkdir(parents=True, exist_ok=True)
    (broken / "__init__.py").write_text("raise ImportError('a broken TensorFlow')\n")
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", ""), str(broken.parent)]))
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    environment |= {"PYTHONPATH": path, "HF_MODULES_CACHE": str(tmp_path / "modules"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, errors = process.communicate(timeout=300)
    return process.returncode, out, errors


@pytest.fixture(scope="module")
def answers(saved, plain, stock, tmp_path_factory):
    """What every route printed; two processes at a time."""
    folders = {"saved": str(saved), "plain": str(plain), "stock": str(stock)}
    names, got = list(ROUTES), {}
    for pair in (names[i : i + 2] for i in range(0, len(names), 2)):
        places = [tmp_path_factory.mktemp("process") for _ in pair]
        codes = [PRELUDE + ROUTES[name].format(**folders) + DRAW for name in pair]
        running = [start(code, place) for code, place in zip(codes, places, strict=True)]
        got |= {name: finish(process) for name, process in zip(pair, running, strict=True)}
    return got


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_draws_the_same_tokens(answers, shared, route):
    code, out, errors = answers[route]
    assert code == 0, errors
    answer = json.loads(out.splitlines()[-1])
    expected = shared(
        "a red cube on grass", seed=[7, 8], num_images_per_prompt=2, guidance_scale=2.0, output_type="latent"
    )
    assert answer["tokens"] == expected.images.tolist()
    assert answer["class"] == "csd_pipeline.pipeline"  # the installed class, whoever loaded it
    assert answer["early"] is False  # what the route promises not to have imported yet


def test_the_embedded_model_and_a_refusal(saved, tmp_path):
    """The model in the package draws by name; code from a folder does not run unless it is trusted."""
    embedded = """
from csd_pipeline import CSDAutoregressivePipeline
early = False
pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
"""
    untrusted = f"""
from diffusers import DiffusionPipeline
try:
    DiffusionPipeline.from_pretrained({str(saved)!r})
    print("loaded")
except ValueError as error:
    print("csd_pipeline" in sys.modules, "trust_remote_code" in str(error))
"""
    places = [tmp_path / "embedded", tmp_path / "untrusted"]
    for place in places:
        place.mkdir()
    running = [start(PRELUDE + code, place) for code, place in zip((embedded + DRAW, untrusted), places, strict=True)]
    (code, out, errors), (other_code, other_out, other_errors) = map(finish, running)
    assert code == 0, errors
    first, second = json.loads(out.splitlines()[-1])["tokens"]
    assert len(first) == len(second) and first != second
    assert other_code == 0, other_errors
    asks = Version(diffusers.__version__) >= Version("0.38")  # before, diffusers ran the code of a local folder unasked
    assert other_out.split() == (["False", "True"] if asks else ["loaded"])
