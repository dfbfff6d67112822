import json

import pytest
import torch
from command_results import one_error


@pytest.fixture
def unbuilt(monkeypatch):
    """Whoever runs the suite fails the test."""

    def refuse(*_):
        raise AssertionError("the suite ran")

    monkeypatch.setattr("csd_pipeline.cli.bench_gpu.run_suite", refuse)


def test_on_a_processor_it_tries_the_tiny_shape(csd, tmp_path):
    result = csd("bench", "--suite", "gpu", "--device", "cpu", "--json", "gpu.json")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert list(content["shapes"]) == ["tiny"] and content["machine"]["device"] == "cpu"
    assert "| tiny | graph | not measured |" in result.stdout and "tiny forward eager" in result.stderr


def test_failures_are_told_after_the_file_is_written(csd, tmp_path, monkeypatch):
    written = {"failures": ["1b naive: OutOfMemoryError: none left"]}
    monkeypatch.setattr("csd_pipeline.cli.bench_gpu.run_suite", lambda *_: written)
    monkeypatch.setattr("csd_pipeline.cli.bench_gpu.markdown", lambda result: "a table")
    result = csd("bench", "--suite", "gpu", "--device", "cpu", "--json", "gpu.json")
    assert result.exit_code == 2 and "a table" in result.stdout
    assert "1 of the figures failed; the first: 1b naive: OutOfMemoryError" in result.stderr
    assert json.loads((tmp_path / "gpu.json").read_text()) == written


@pytest.mark.parametrize("arguments", [(), ("--device", "cuda"), ("--device", "cuda:1", "--shape", "7b")])
def test_without_a_gpu_nothing_is_built(csd, unbuilt, monkeypatch, arguments):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    one_error(csd("bench", "--suite", "gpu", *arguments), "--device cpu")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--device", "cpu", "--shape", "tiny", "--shape", "1b"), ("--shape 1b: too large", "--shape tiny")),
        (("--device", "mps"), ("--device mps", "cuda, cuda:N and, to try it out, cpu")),
        (("--shape", "3b"), ("--shape", "'1b', '7b', 'tiny'")),
        (("--arm", "balanced"), ("--arm does not belong to --suite gpu", "--shape, --device, --json, --overwrite")),
        (("--quick",), ("--quick does not belong",)),
        (("--report", "r.html"), ("--report does not belong",)),
        (("--dtype", "float32"), ("--dtype does not belong",)),
        (("--prompts", 16), ("--prompts does not belong",)),
        (("--device", "cpu", "--json", "no/such/folder.json"), ("a folder that exists",)),
    ],
)
def test_bad_input_is_refused_before_anything_is_built(csd, unbuilt, arguments, parts):
    one_error(csd("bench", "--suite", "gpu", *arguments), *parts)


def test_shapes_belong_to_no_other_suite(csd):
    one_error(csd("bench", "--shape", "tiny"), "--shape does not belong to --suite methods", "--arm")


def test_an_old_gpu_is_refused(csd, unbuilt, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    one_error(csd("bench", "--suite", "gpu"), "cuda does not compute in bfloat16")
