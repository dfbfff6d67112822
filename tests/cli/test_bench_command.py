import json

import pytest
import torch
from command_results import one_error


@pytest.fixture
def unloaded(monkeypatch):
    """Whoever loads a model fails the test."""

    def refuse(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("csd_pipeline.cli.bench_run._load", refuse)


def test_it_writes_table_recipe_and_report(csd, tmp_path):
    arms = ("csd-coupled", "csd-janus-pro-7b-quality label=naive loop=naive")
    wanted = [part for arm in arms for part in ("--arm", arm)]
    files = ("--json", "bench.json", "--report", "bench.html")
    result = csd("bench", "--prompts", 1, *wanted, "--window", 64, "--seed", 7, *files)
    assert result.exit_code == 0, result.output
    names = ["ar", "ar (other seeds)", "csd-coupled W=64", "naive W=64", "transformers"]
    content = json.loads((tmp_path / "bench.json").read_text())
    (figures,) = content["results"]
    assert [row["arm"] for row in figures["rows"]] == names and figures["threads"] == 1
    assert [image["arm"] for image in figures["images"]] == names
    assert all(row["subject"] is not None and row["drift_per_token"]["mean"] >= 0 for row in figures["rows"])
    recipe = content["recipe"]
    assert {"machine", "model", "sampling", "prompts", "seed", "threads", "arms"} <= set(recipe)
    assert recipe["seed"] == 7 and [arm["name"] for arm in recipe["arms"]] == names[:-1]
    page = (tmp_path / "bench.html").read_text()
    assert all(f"| {name} |" in result.stdout and f"<td>{name}</td>" in page for name in names)
    assert page.count("data:image/png") == 1 and "1 of 1 prompts done" in result.stderr


def test_every_thread_count_is_measured(csd, tmp_path, monkeypatch):
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)  # two threads that spin would stall a busy machine
    arguments = ("--prompts", 1, "--arm", "exact", "--window", 64, "--threads", 1, "--threads", 2, "--json", "b.json")
    result = csd("bench", *arguments)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "b.json").read_text())
    assert [entry["threads"] for entry in content["results"]] == content["recipe"]["threads"] == counts == [1, 2]
    one, two = ([row["nfe"]["mean"] for row in entry["rows"]] for entry in content["results"])
    assert len(one) == len(two) == 4 and one[0] == two[0] == 255


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--arm", "balancd"), ("did you mean 'balanced'",)),
        (("--arm", "entropy:lam=-1"), ("lam must be a number >= 0",)),
        (("--arm", "balanced", "--arm", "balanced"), ("two arms are called", "label=NAME")),
        (("--quick", "--arm", "balanced"), ("--quick chooses its own arms",)),
        (("--json", "no/such/folder.json"), ("--json no/such/folder.json", "a folder that exists")),
        (("--report", "."), ("--report .", "give a file")),
        (("--threads", 1, "--threads", 1), ("the same count twice",)),
        (("--prompt-file", "none.txt"), ("no file 'none.txt'",)),
        (("--temperature", -1), ("temperature must be a number >= 0",)),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(csd, unloaded, arguments, parts):
    one_error(csd("bench", *arguments), *parts)


def test_a_prompt_the_judge_does_not_know_is_refused_before_the_model_is_loaded(csd, unloaded, tmp_path):
    (tmp_path / "prompts.txt").write_text("red apple on white\na quarrel of lawyers\n")
    one_error(csd("bench", "--prompt-file", "prompts.txt"), "'a quarrel of lawyers' names no subject")


def test_a_report_without_matplotlib_says_what_to_install(csd, unloaded, monkeypatch):
    monkeypatch.setattr("csd_pipeline.cli.bench_plan.importlib.util.find_spec", lambda name: None)
    one_error(csd("bench", "--report", "r.html"), "needs matplotlib", "pip install matplotlib")
