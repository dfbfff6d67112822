"""`csd convert`, `csd info` and `csd doctor` on published checkpoints."""

import json
import shutil

import pytest
import torch
from click.testing import CliRunner
from published import LAYOUTS, WITHOUT_EXTRA, read_weights, write_weights

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.cli import app, doctor
from csd_pipeline.weight_files import describe


@pytest.fixture
def csd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_report_import", lambda report: None)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)), prog_name="csd")


def options(published):
    return [text for name, path in published.extra.items() for text in (f"--{name.replace('_', '-')}", path)]


@pytest.mark.parametrize("name", ["lumina-folder", "llamagen-text", "chameleon-official"])
def test_convert_writes_a_folder_that_loads(csd, checkpoints, tmp_path, name):
    published = checkpoints(name)
    result = csd("convert", published.source, "out", *options(published), "--dtype", "float16")
    assert result.exit_code == 0, result.output
    assert result.stdout == "out\n"
    files = list((tmp_path / "out" / "target").glob("*.safetensors"))
    assert {tensor.dtype for file in files for tensor in describe(file).values()} == {torch.float16}
    assert CSDAutoregressivePipeline.from_pretrained("out", dtype="float16").target.dtype == torch.float16


def test_convert_refuses_in_one_line(csd, checkpoints):
    published = checkpoints("lumina-folder")
    result = csd("convert", published.source, "out")
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and "holds no picture decoder; run: csd convert" in line
    assert "Invalid value for '--vq'" in csd("convert", published.source, "out", "--vq", "nowhere").stderr
    assert "did you mean" in csd("convert", "embeded", "out").stderr


SIZES = {
    "janus-original": "8x8 (",
    "chameleon-folder": "64x64 (",
    "anole-folder": "64x64 (",
    "chameleon-official": "64x64 (",
    "chameleon-parallel": "64x64 (",
    "lumina-folder": "96x96, 32x128, ",
    "emu3-folder": "64x64, ",
    "emu3-original": "64x64, ",
    "llamagen-class": "64x64 (",  # with the published picture decoder; the tiny one has four levels, not five
    "llamagen-text": "64x64 (",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_info_describes_every_layout_without_its_weights(csd, checkpoints, monkeypatch, name):
    def refuse(*_, **__):
        raise AssertionError("weights were read")

    published = checkpoints(name)
    monkeypatch.setattr("csd_pipeline.layouts.assemble.read", refuse)
    monkeypatch.setattr("transformers.modeling_utils.PreTrainedModel.from_pretrained", refuse)
    result = csd("info", published.source, "--json", "--dtype", "float16", "--batch", 3)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["family"].startswith(name.split("-")[0].replace("anole", "chameleon"))
    assert facts["sizes"].startswith(SIZES["-".join(name.split("-")[:2])]) and facts["sizes"].endswith(
        "(width x height)"
    )
    assert facts["stored as"].startswith("float32")
    assert "3 pictures at once" in facts["memory"] and facts["memory"].endswith("in float16")
    if not published.extra:
        assert facts["bytes"]["float16"]["weights"] == 2 * sum(p.numel() for p in published.model.parameters())
    assert ("lacks" in facts) == bool(published.extra)
    assert facts["relaxation"].startswith("Exact")


@pytest.mark.parametrize("name", LAYOUTS)
def test_doctor_finds_what_is_missing_and_what_mends_it(csd, checkpoints, name):
    published = checkpoints(name)
    result = csd("doctor", published.source)
    if published.extra:
        assert result.exit_code == 1
        assert f"csd convert {published.source} OUT --vq" in result.stdout.split("what mends it:")[1]
    else:
        assert result.exit_code == 0, result.stdout
        assert "ok  model" in result.stdout and "whole" in result.stdout


@pytest.mark.parametrize("name", WITHOUT_EXTRA)
def test_doctor_names_a_tensor(csd, checkpoints, tmp_path, name):
    published = checkpoints(name)
    folder = shutil.copytree(published.source, tmp_path / "copy")
    weights = folder / published.weights.relative_to(published.source)
    tensors = read_weights(weights)
    tensors["nobody.knows.this"] = tensors.pop(published.key)
    write_weights(weights, tensors)
    result = csd("doctor", folder)
    assert result.exit_code == 1
    if name == "chameleon-parallel":
        assert f"{weights} has no part of tensor '{published.key}'" in result.stdout
    else:
        assert "are missing, first: " in result.stdout and "nobody.knows.this" in result.stdout


def test_info_tells_the_weights_as_stored_tensor_by_tensor(csd, checkpoints, tmp_path):
    published = checkpoints("janus-original")
    folder = shutil.copytree(published.source, tmp_path / "half")
    file = folder / published.weights.name
    write_weights(file, {name: tensor.half() for name, tensor in read_weights(file).items()})
    result = csd("info", folder, "--dtype", "auto", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    target = CSDAutoregressivePipeline.from_pretrained(folder, dtype="auto").target
    sizes = {p.element_size() for p in target.parameters()}
    assert sizes == {2, 4}
    assert facts["bytes"]["as stored"]["weights"] == sum(p.numel() * p.element_size() for p in target.parameters())


def test_info_estimates_the_size_asked_for(csd, checkpoints):
    published = checkpoints("lumina-folder")
    cached = {}
    for size in ("96x96", "32x128"):
        result = csd("info", published.source, "--size", size, "--dtype", "float16", "--batch", 1, "--json")
        assert result.exit_code == 0, result.output
        cached[size] = json.loads(result.stdout)["bytes"]["float16"]["cache"]
    assert cached["96x96"] > cached["32x128"]
    refused = csd("info", published.source, "--size", "97x96")
    assert refused.exit_code == 2 and "this model draws 96x96, " in refused.stderr
