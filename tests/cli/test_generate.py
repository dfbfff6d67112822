import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from command_results import one_error
from PIL import Image

from csd_pipeline.cli import run
from csd_pipeline.cli.files import Destination
from csd_pipeline.cli.jobs import plan_images
from csd_pipeline.decoding.trace import TraceRecorder
from csd_pipeline.drafters.window_choice import WINDOWS
from csd_pipeline.picture_file import read_recipe, save_picture
from csd_pipeline.sources import MODELS

PROMPTS = "red apple on white\n\n  ein Fuchs 🦊 on blue  \n"
LAST_SEED = 2**64 - 1  # the second picture wraps around to seed 0


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Both prompts in one call, with maps and traces: the result and its folder."""
    from click.testing import CliRunner

    from csd_pipeline.cli import app

    folder = tmp_path_factory.mktemp("drawn")
    (folder / "prompts.txt").write_text(PROMPTS, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OMP_NUM_THREADS", "1")
        options = ["--preset", "balanced", "--maps", "--json", "traces.json", "-o", "out"]
        arguments = ["generate", "--prompts", "prompts.txt", "--seed", str(LAST_SEED), *options]
        yield CliRunner().invoke(app, arguments), folder


def test_one_line_per_picture_and_no_noise(drawn):
    result, folder = drawn
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    for line, trace in zip(lines, json.loads((folder / "traces.json").read_text()), strict=True):
        assert line.startswith(f"{trace['file']}  ")
        assert f"{trace['nfe']} forwards for {trace['tokens']} tokens" in line
        assert f"{trace['tokens_per_step']:.2f} tokens/step" in line


def test_traces_tell_what_was_drawn(drawn):
    _, folder = drawn
    traces = json.loads((folder / "traces.json").read_text())
    assert [(trace["prompt"], trace["seed"]) for trace in traces] == [
        ("red apple on white", LAST_SEED),
        ("ein Fuchs 🦊 on blue", 0),
    ]
    for trace in traces:
        assert {"accepted_per_step", "drift_per_token", "seconds", "tokens"} < set(trace)
        assert trace["nfe"] < trace["tokens"]
        assert trace["exact"] is False
        recipe = read_recipe(folder / trace["file"])
        assert (recipe["prompt"], recipe["seed"], recipe["model"]) == (trace["prompt"], trace["seed"], "embedded")
        with Image.open(folder / trace["maps"]) as sheet, Image.open(folder / trace["file"]) as picture:
            assert sheet.height > picture.height
            assert sheet.width > 5 * picture.width


def test_a_part_of_the_job_draws_the_same_picture(drawn, csd, tmp_path):
    _, folder = drawn
    result = csd(
        "generate", "ein Fuchs 🦊 on blue", "--seed", 0, "--preset", "balanced", "-o", "half.png", "--scale", 2
    )
    assert result.exit_code == 0, result.output
    whole = next(path for path in (folder / "out").glob("ein-fuchs-on-blue-0.png"))
    assert read_recipe(tmp_path / "half.png") == read_recipe(whole)  # the digest of the tokens included
    with Image.open(tmp_path / "half.png") as half, Image.open(whole) as picture:
        assert half.size == (2 * picture.width, 2 * picture.height)


def test_from_draws_the_same_tokens_beside_the_first_picture(drawn, csd):
    _, folder = drawn
    picture = folder / "out" / f"red-apple-on-white-{LAST_SEED}.png"
    before = picture.read_bytes()
    result = csd("generate", "--from", picture, "-o", folder / "out")
    assert result.exit_code == 0, result.output
    assert result.stderr == "the same tokens as in the given picture\n"
    again = picture.with_name(f"{picture.stem}-1.png")
    assert picture.read_bytes() == before
    assert read_recipe(again) == read_recipe(picture)
    with Image.open(again) as a, Image.open(picture) as b:
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("preset", "redraw"), [("exact", "gumbel"), ("balanced", "coupled")])
def test_an_automatic_method_is_drawn_again_with_what_was_chosen(csd, tmp_path, preset, redraw):
    automatic = ("--window", "auto", "--redraw", "auto")
    result = csd("generate", "snowman", *automatic, "--preset", preset, "--seed", 1)
    assert result.exit_code == 0, result.output
    recipe = read_recipe(tmp_path / "snowman-1.png")
    assert recipe["drafter"]["window"] in WINDOWS and recipe["drafter"]["redraw"] == redraw
    again = csd("generate", "--from", "snowman-1.png", "-o", "again.png")
    assert again.stderr == "the same tokens as in the given picture\n"
    assert read_recipe(tmp_path / "again.png") == recipe


@pytest.mark.parametrize("option", ["--window", "--redraw"])
def test_pictures_of_an_automatic_method_can_not_be_resumed(csd, option):
    refused = csd("generate", "snowman", option, "auto", "--seed", 1, "--resume", "-o", "out/")
    assert refused.exit_code != 0 and "choose --window and --redraw instead of auto" in refused.output


def test_a_lossy_record_is_not_called_exact(csd):
    lossy = ("--draft", "guide=growth", "--draft", "record=lossy", "--redraw", "coupled")
    result = csd("generate", "snowman", "--preset", "exact", *lossy, "--seed", 2)
    assert result.exit_code == 0, result.output
    assert not result.stdout.rstrip().endswith("exact")


def test_exact_methods_say_so(csd, tmp_path):
    result = csd("generate", "snowman", "-v", "--seed", 1)
    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip().endswith("exact")
    assert "dtype: float32" in result.stderr
    assert (tmp_path / "snowman-1.png").is_file()


def test_an_interruption_keeps_finished_pictures(csd, tmp_path, monkeypatch):
    draw, calls = run._draw, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(run, "_draw", interrupted)
    result = csd("generate", "rocket", "-n", 3, "--batch", 1, "--json", "t.json", "--preset", "fast")
    assert result.exit_code == 130
    assert "interrupted: 1 of 3 pictures saved" in result.stderr
    assert result.stderr.startswith("seed ")
    (trace,) = json.loads((tmp_path / "t.json").read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([trace["file"], "t.json"])


def test_ctrl_c_within_a_batch_keeps_the_pictures_that_are_finished(csd, tmp_path, monkeypatch):
    """Of three pictures drawn at once the first one that is finished survives, the fourth is never begun."""
    advance, finished, handler = TraceRecorder.advance, [], signal.getsignal(signal.SIGINT)

    def interrupting(recorder, image, before, after):
        advance(recorder, image, before, after)
        if after == 256 and before < 256:
            finished.append(image)
            if len(finished) == 1:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TraceRecorder, "advance", interrupting)
    result = csd("generate", "rocket", "-n", 4, "--batch", 3, "--seed", 5, "--json", "t.json", "--preset", "fast")
    assert result.exit_code == 130, result.output
    assert 0 < len(finished) < 3
    assert f"interrupted: {len(finished)} of 4 pictures saved" in result.stderr
    traces = json.loads((tmp_path / "t.json").read_text())
    assert [(trace["seed"], trace["tokens"]) for trace in traces] == [(5 + image, 256) for image in sorted(finished)]
    assert {path.name for path in tmp_path.glob("*.png")} == {trace["file"] for trace in traces}
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_picture_that_can_not_be_written_leaves_those_before_it_and_their_traces(csd, tmp_path, monkeypatch):
    write, names = Destination.write_picture, []

    def full_disk(destination, content, prompt, seed):
        if names:
            raise OSError("no space left")
        names.append(write(destination, content, prompt, seed).name)
        return tmp_path / names[0]

    monkeypatch.setattr(Destination, "write_picture", full_disk)
    result = csd("generate", "rocket", "-n", 2, "--seed", 5, "--json", "t.json", "--preset", "fast")
    assert result.exit_code == 2 and "no space left" in result.stderr
    (trace,) = json.loads((tmp_path / "t.json").read_text())
    assert trace["seed"] == 5 and (tmp_path / names[0]).is_file()


def test_relaxed_pictures_without_drift_are_not_called_exact(csd, tmp_path):
    """So little relaxation that nothing was spent; and an exact rule beside it."""
    for knob, exact in (("lam=1e-30", False), ("lam=0", True)):
        options = ("--window", 4, "--relaxation", "entropy", "--relax", knob, "--json", "t.json", "--overwrite")
        result = csd("generate", "rocket", "--seed", 1, *options)
        assert result.exit_code == 0, result.output
        (trace,) = json.loads((tmp_path / "t.json").read_text())
        assert trace["drift"] == 0 and trace["exact"] is exact
        assert result.stdout.rstrip().endswith("  exact") is exact


def test_seeds_count_over_the_whole_job():
    images = plan_images(["a", "b"], 2, 5)
    assert [(image.prompt, image.seed) for image in images] == [("a", 5), ("a", 6), ("b", 7), ("b", 8)]


BAD = [
    ([], "nothing to draw"),
    (["x", "--prompts", "p.txt"], "give one of them"),
    (["--prompts", "missing.txt"], "no file 'missing.txt'"),
    (["--prompts", "blank.txt"], "holds no prompt"),
    (["--prompts", "latin1.txt"], "no UTF-8 text"),
    (["x", "--preset", "fats"], "did you mean 'fast'"),
    (["x", "--drafter", "jakobi"], "did you mean 'jacobi'"),
    (["x", "--window", "0"], "window must be an integer >= 1"),
    (["x", "--window", "many"], "'--window'"),
    (["x", "--relaxation", "entropy", "--relax", "lamb=1"], "did you mean 'lam'"),
    (["x", "--filter", "budget:budget=2"], "budget must be between 0 and 1, got 2.0"),
    (["x", "--temperature", "nan"], "temperature must be a number >= 0, got nan"),
    (["x", "--top-p", "1.5"], "top_p must be between 0 and 1"),
    (["x", "--top-k", "-1"], "top_k must be an integer >= 0"),
    (["x", "--guidance-scale", "-1"], "guidance_scale must be a number >= 0"),
    (["x", "--seed", str(2**64)], "'--seed'"),
    (["x", "-n", "0"], "'--count'"),
    (["x", "-o", "a.webp"], "saved as .png"),
    (["x", "--json", "nowhere/t.json"], "a folder that exists"),
    (["--from", "missing.png"], "no picture file"),
    (["--from", "plain.png"], "carries no recipe"),
    (["--from", "elsewhere.png"], "--model"),
    (["--from", "later.png"], "unknown relaxation in the recipe"),
    (["--from", "torn.png"], "the recipe in torn.png says seed '1'; it must be an integer"),
    (["--from", "later.png", "--seed", "3"], "leave out --seed"),
    (["--from", "later.png", "a prompt"], "leave out a prompt"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_sentence_before_the_model_loads(csd, no_model, tmp_path, arguments, message):
    Path("blank.txt").write_text("\n \n")
    Path("latin1.txt").write_bytes("Füchse".encode("latin-1"))
    Path("p.txt").write_text("x")
    Image.new("RGB", (4, 4)).save("plain.png")
    recipe = {"prompt": "x", "seed": 1, "model": "my-janus", "drafter": {"_class_name": "JacobiDrafter", "window": 2}}
    save_picture(Image.new("RGB", (4, 4)), "elsewhere.png", recipe | {"relaxation": {"_class_name": "Exact"}})
    save_picture(
        Image.new("RGB", (4, 4)), "later.png", recipe | {"model": "embedded", "relaxation": {"_class_name": "Z"}}
    )
    save_picture(Image.new("RGB", (4, 4)), "torn.png", recipe | {"seed": "1", "relaxation": {"_class_name": "Exact"}})
    before = sorted(tmp_path.iterdir())
    one_error(csd("generate", *arguments), message)
    assert sorted(tmp_path.iterdir()) == before


def test_broken_models_and_devices_are_one_sentence(csd, tmp_path):
    one_error(csd("generate", "x", "--model", "./nothing-here"), "no folder './nothing-here'")
    one_error(csd("generate", "x", "--device", "cuda:99"), "--device cuda:99")
    one_error(csd("generate", "x", "--device", "auto:3"), "--device auto:3: auto picks the device itself")
    one_error(csd("generate", "x", "--dtype", "fp12"), "unknown dtype 'fp12'")
    shutil.copytree(MODELS / "embedded", tmp_path / "broken")
    weights = tmp_path / "broken" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    one_error(csd("generate", "x", "--model", "broken/"), "model.safetensors", "truncated")
    assert not list(tmp_path.glob("*.png"))


def test_refilled_pictures_are_the_same(drawn, csd, tmp_path):
    _, folder = drawn
    arguments = ("--prompts", folder / "prompts.txt", "-n", 2, "--batch", 1, "--refill", "--preset", "balanced")
    result = csd("generate", *arguments, "--seed", LAST_SEED - 1, "-o", "refilled", "--json", "refilled.json")
    assert result.exit_code == 0, result.output
    traces = json.loads((tmp_path / "refilled.json").read_text())
    assert [trace["seed"] for trace in traces] == [LAST_SEED - 1, LAST_SEED, 0, 1]
    before = json.loads((folder / "traces.json").read_text())
    assert traces[1]["prompt"] == before[0]["prompt"] and traces[1]["nfe"] == before[0]["nfe"]
    digests = [
        read_recipe(trace["file"])["tokens_sha256"]
        for trace in (traces[1], before[0] | {"file": folder / before[0]["file"]})
    ]
    assert digests[0] == digests[1]


def test_cuda_graphs_elsewhere_are_refused_before_the_model_loads(csd, no_model):
    one_error(csd("generate", "a fox", "--device", "cpu", "--cuda-graphs"), "--cuda-graphs needs a CUDA device")
