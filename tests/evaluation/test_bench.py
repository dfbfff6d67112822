import json
import math

import pytest
from click.testing import CliRunner

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.decoding import Warp
from csd_pipeline.evaluation.arms import METHODS, build_arms
from csd_pipeline.evaluation.bench import Bench
from csd_pipeline.evaluation.bench_command import bench_command


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(CSDAutoregressivePipeline.from_pretrained("embedded"), Warp(guidance_scale=1.5, temperature=0.8))


def test_arms_run_interleaved_with_the_same_seeds(bench):
    arms = build_arms(["exact-gumbel"], [64])
    runs = bench.run(arms, ["red apple on white", "panda on grass"], seed=3)
    assert [run.arm for run in runs] == [arm.name for arm in arms] * 2
    assert [run.seed for run in runs if run.arm == "ar"] == [3, 4]
    for plain, fast in zip(runs[::3], runs[2::3], strict=True):
        assert (plain.tokens == fast.tokens).all() and fast.nfe < plain.nfe == 255
        assert 0 < fast.forward_cpu <= fast.cpu and math.isfinite(fast.wall)
    assert bench.pixels(runs).shape[:2] == (len(runs), 3)


def test_transformers_arm_draws_a_whole_picture(bench):
    run = bench.decode_with_transformers("red apple on white", seed=0)
    assert run.tokens.shape == (1, bench.adapter.grid.tokens) and run.nfe == bench.adapter.grid.tokens - 1


def test_every_method_builds_at_every_window():
    for arm in build_arms(list(METHODS), [1, 2, 64]):
        assert set(arm.parts) == {"drafter", "relaxation", "alignment_filter"}
    with pytest.raises(ValueError, match="did you mean 'exact-gumbel'"):
        build_arms(["exact-gumble"], [8])


def test_the_command_writes_its_whole_recipe(tmp_path):
    file = tmp_path / "bench.json"
    arguments = ["--prompts", "1", "--method", "csd-coupled", "--window", "64", "--json", str(file)]
    result = CliRunner().invoke(bench_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0 and "csd-coupled W=64" in result.output
    report = json.loads(file.read_text())
    assert {"machine", "versions", "model", "sampling", "prompts", "seed", "threads"} <= set(report["recipe"])
    assert [row["arm"] for row in report["rows"]] == ["ar", "ar (other seeds)", "csd-coupled W=64", "transformers"]
    assert all(row["subject"] is not None for row in report["rows"]) and len(report["runs"]) == 4
