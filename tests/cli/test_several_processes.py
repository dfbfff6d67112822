"""`accelerate launch` over a prompt list: real processes draw the pictures of one, and one manifest names all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from csd_pipeline.cli.jobs import Image
from csd_pipeline.cli.processes import Processes
from csd_pipeline.picture_file import read_recipe

PROMPTS = "rocket\nsnowman\nred apple on white\n"
PACKAGE_ROOT = Path(__file__).parents[2]
GENERATE = ("-m", "csd_pipeline.cli", "generate", "--prompts", "list.txt", "--device", "cpu", "--preset", "fast")
LAUNCH = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1", "--mixed_precision", "no",
          "--dynamo_backend", "no", "--main_process_port", "0", "--num_processes", "2")  # fmt: skip


def start(folder, *arguments, prompts=PROMPTS):
    """Two processes."""
    (folder / "list.txt").write_text(prompts)
    paths = [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *LAUNCH, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_two_processes_draw_the_pictures_of_one(csd, tmp_path):
    options = ("--seed", "5", "--json", "traces.json", "-o", "out")
    (tmp_path / "two").mkdir()
    result = start(tmp_path / "two", *GENERATE, *options)
    assert result.returncode == 0, result.stderr
    (tmp_path / "list.txt").write_text(PROMPTS)
    assert csd(*GENERATE[2:], *options).exit_code == 0
    one, two = (json.loads((folder / "out" / "manifest.json").read_text()) for folder in (tmp_path, tmp_path / "two"))
    assert one == two and two["missing"] == [] and len(two["pictures"]) == 3  # digests of the tokens included
    for folder in (tmp_path, tmp_path / "two"):
        assert [trace["seed"] for trace in json.loads((folder / "traces.json").read_text())] == [5, 6, 7]
        for picture in two["pictures"]:
            assert read_recipe(folder / "out" / picture["file"])["tokens_sha256"] == picture["tokens_sha256"]


def test_more_processes_than_pictures_share_a_random_seed_and_can_be_resumed(csd, tmp_path):
    result = start(tmp_path, *GENERATE, prompts="rocket\n")
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (picture,) = manifest["pictures"]
    assert [line for line in result.stderr.splitlines() if line.startswith("seed ")] == [f"seed {picture['seed']}"]
    resumed = csd(*GENERATE[2:], "--seed", picture["seed"], "--resume")
    assert resumed.exit_code == 0 and resumed.stdout == ""  # nothing was left to draw
    assert json.loads((tmp_path / "manifest.json").read_text()) == manifest


def test_a_process_on_its_own_keeps_the_whole_list(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    processes, images = Processes("cuda"), [Image("a", 1, 0), Image("b", 2, 1)]
    assert processes.main and processes.alone and processes.device == "cuda"
    assert processes.share(images) is images and processes.gather(images) is images


def test_a_device_that_processes_can_not_share_is_refused(monkeypatch):
    from accelerate.state import PartialState

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(PartialState, "_shared_state", {})
    with pytest.raises(ValueError, match="2 processes were started, and mps lets them not work together"):
        Processes("mps")
