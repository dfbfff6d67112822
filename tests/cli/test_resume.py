"""Prompt lists: a manifest at the end, and --resume draws only what is missing."""

import json

import pytest
from command_results import one_error

from csd_pipeline.cli import run
from csd_pipeline.picture_file import read_recipe

PROMPTS = "rocket\nsnowman\nred apple on white\n"


@pytest.fixture
def drawn(monkeypatch):
    """Seeds of the pictures that were drawn since, in order."""
    seeds, draw = [], run._draw

    def counted(pipeline, images, *rest):
        seeds.extend(image.seed for image in images)
        return draw(pipeline, images, *rest)

    monkeypatch.setattr(run, "_draw", counted)
    return seeds


@pytest.fixture
def listed(csd, tmp_path):
    """`csd generate` over the prompt list, seeds 5, 6, 7."""
    (tmp_path / "list.txt").write_text(PROMPTS)
    standard = ("--prompts", "list.txt", "--seed", 5, "--preset", "fast", "-o", "out")

    def call(*more):
        return csd("generate", *standard, *more)

    return call


def test_only_what_is_missing_is_drawn_and_the_manifest_names_all(listed, drawn, tmp_path):
    assert listed().exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [(p["index"], p["prompt"], p["seed"]) for p in manifest["pictures"]] == [
        (0, "rocket", 5),
        (1, "snowman", 6),
        (2, "red apple on white", 7),
    ]
    assert manifest["missing"] == [] and manifest["model"] == "embedded"
    for picture in manifest["pictures"]:
        assert read_recipe(tmp_path / "out" / picture["file"])["tokens_sha256"] == picture["tokens_sha256"]

    lost = tmp_path / "out" / manifest["pictures"][1]["file"]
    lost.unlink()
    drawn.clear()
    result = listed("--resume")
    assert result.exit_code == 0, result.output
    assert drawn == [6] and "2 of 3 pictures are there already" in result.stderr
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == manifest
    assert len(list((tmp_path / "out").glob("*.png"))) == 3

    drawn.clear()
    assert listed("--resume").exit_code == 0
    assert drawn == []


@pytest.mark.parametrize(
    "change", [("--temperature", 0.5), ("--scale", 2), ("--negative-prompt", "dog"), ("--preset", "balanced")]
)
def test_pictures_drawn_otherwise_are_not_taken_for_these(listed, drawn, tmp_path, change):
    (tmp_path / "list.txt").write_text("rocket\n")
    assert listed().exit_code == 0
    drawn.clear()
    assert listed("--resume", *change).exit_code == 0
    assert drawn == [5]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == ["rocket-5-1.png", "rocket-5.png"]


def test_other_files_under_the_name_are_left_alone(listed, drawn, tmp_path):
    (tmp_path / "list.txt").write_text("rocket\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rocket-5.png").write_bytes(b"no picture")
    for expected in ([5], []):
        drawn.clear()
        assert listed("--resume").exit_code == 0
        assert drawn == expected
    assert (tmp_path / "out" / "rocket-5.png").read_bytes() == b"no picture"


def test_after_an_interruption_the_manifest_says_what_is_missing(listed, tmp_path, monkeypatch):
    class Stopped(run.StopRequest):
        asked = property(lambda self: True, lambda self, value: None)

    monkeypatch.setattr(run, "StopRequest", Stopped)
    assert listed("--batch", 2).exit_code == 130
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["pictures"] == [] and manifest["missing"] == [0, 1, 2]


def test_resuming_needs_the_seed(csd, no_model):
    one_error(csd("generate", "rocket", "--resume"), "give the --seed of that run")
