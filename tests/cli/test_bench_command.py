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


def test_it_writes_table_recipe_and_report_of_every_thread_count(csd, tmp_path, monkeypatch):
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)  # two threads that spin would stall a busy machine
    arms = ("csd-coupled", "csd-janus-pro-7b-quality label=naive loop=naive")
    wanted = [part for arm in arms for part in ("--arm", arm)]
    files = ("--threads", 1, "--threads", 2, "--json", "bench.json", "--report", "bench.html")
    result = csd("bench", "--prompts", 1, *wanted, "--window", 64, "--seed", 7, *files)
    assert result.exit_code == 0, result.output
    names = ["ar", "ar (other seeds)", "csd-coupled W=64", "naive W=64", "transformers"]
    content = json.loads((tmp_path / "bench.json").read_text())
    results, recipe = content["results"], content["recipe"]
    assert [figures["threads"] for figures in results] == recipe["threads"] == [1, 2]
    assert counts == [1, 1, 2]  # before the model is loaded, then for each table
    for figures in results:
        assert [row["arm"] for row in figures["rows"]] == names
        assert [image["arm"] for image in figures["images"]] == names
        assert all(row["subject"] is not None and row["drift_per_token"]["mean"] >= 0 for row in figures["rows"])
        assert figures["rows"][0]["nfe"]["mean"] == 255
    assert {"machine", "model", "sampling", "prompts", "seed", "threads", "arms"} <= set(recipe)
    assert recipe["seed"] == 7 and [arm["name"] for arm in recipe["arms"]] == names[:-1]
    page = (tmp_path / "bench.html").read_text()
    assert all(f"| {name} |" in result.stdout and f"<td>{name}</td>" in page for name in names)
    assert page.count("data:image/png") == 1 and "1 of 1 prompts done" in result.stderr


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
