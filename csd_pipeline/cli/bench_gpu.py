"""`csd bench --suite gpu`: one device, random weights, one JSON and a table."""

from __future__ import annotations

import json

import click
import torch

from csd_pipeline.evaluation.gpu_suite.shapes import SHAPES
from csd_pipeline.evaluation.gpu_suite.suite import run_suite
from csd_pipeline.evaluation.gpu_suite.table import markdown

from .bench_plan import Outputs
from .devices import choose_device, choose_dtype
from .errors import note, quiet_libraries

_ON_GPU, _ON_CPU = ("1b", "7b"), ("tiny",)


def run_gpu_suite(names: tuple[str, ...], wanted: str, outputs: Outputs) -> None:
    """Measure and report.

    Args:
        names: of shapes; none are those of Janus-Pro, or on the CPU the tiny one.
        wanted: device, as on the command line.

    Raises:
        ValueError: no CUDA device, one without bfloat16, or a shape too large for a processor.
        RuntimeError: some figures could not be measured because of errors; the others are written first.
    """
    device = _device(wanted)
    names = names or (_ON_CPU if device == "cpu" else _ON_GPU)
    too_large = [name for name in names if device == "cpu" and name not in _ON_CPU]
    if too_large:
        raise ValueError(f"--shape {too_large[0]}: too large for a processor; with --device cpu use --shape tiny")
    quiet_libraries()
    result = run_suite([SHAPES[name] for name in dict.fromkeys(names)], device, note)
    click.echo(markdown(result) + "\n")
    if outputs.json_file is not None:
        outputs.write(outputs.json_file, json.dumps(result, indent=1, allow_nan=False) + "\n")
    if result["failures"]:
        raise RuntimeError(f"{len(result['failures'])} of the figures failed; the first: {result['failures'][0]}")


def _device(wanted: str) -> str:
    if wanted == "cpu":
        return wanted
    if wanted == "auto":
        if not torch.cuda.is_available():
            raise ValueError(
                f"--suite gpu measures a CUDA GPU and torch {torch.__version__} finds none; `csd doctor` says why, and "
                "--device cpu runs the suite on a tiny shape to try it out"
            )
        wanted, _ = choose_device("cuda")
    if not wanted.startswith("cuda"):
        raise ValueError(f"--device {wanted}: --suite gpu knows cuda, cuda:N and, to try it out, cpu")
    device, _ = choose_device(wanted)
    choose_dtype("bfloat16", device)
    return device
