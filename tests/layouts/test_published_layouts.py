"""Every published layout, loaded, converted, saved and loaded again elsewhere: the same greedy tokens and pixels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from published import LAYOUTS, WITHOUT_EXTRA

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.conversion import convert
from csd_pipeline.layouts import Extra, open_checkpoint
from csd_pipeline.presets import build_parts, read_preset
from csd_pipeline.sources import fetch
from csd_pipeline.targets import adapter_for

REPOSITORY = Path(__file__).parents[2]
DIFFUSERS = """
import json, socket, sys
def no_connection(*args, **kwargs):
    raise AssertionError("tried to open a connection")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = no_connection
import torch
torch.set_num_threads(1)
from diffusers import DiffusionPipeline
assert "csd_pipeline" not in sys.modules
for folder, prompt in json.loads(sys.argv[1]):
    pipeline = DiffusionPipeline.from_pretrained(folder, trust_remote_code=True)
    pipeline.set_progress_bar_config(disable=True)
    print(json.dumps(pipeline(prompt, temperature=0.0, seed=1, output_type="latent").images.tolist()))
"""


def draw(pipeline, prompt: str) -> list:
    pipeline.set_progress_bar_config(disable=True)
    return pipeline(prompt, temperature=0.0, seed=1, output_type="latent").images.tolist()


def assert_same_weights(target, model) -> None:
    own, expected = target.state_dict(), model.state_dict()
    assert set(own) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(own[name], tensor), name


def assert_same_pixels(target, model, tokens: list) -> None:
    with torch.no_grad():
        got, expected = (adapter_for(m).decode(torch.tensor(tokens)) for m in (target, model))
    assert torch.equal(got, expected)


@pytest.fixture(scope="module")
def converted(checkpoints, tmp_path_factory):
    """By layout: the folder written, and the tokens of the model its files were made from."""
    results = {}
    for name in LAYOUTS:
        published = checkpoints(name)
        out = tmp_path_factory.mktemp("converted") / name
        pipeline = convert(published.source, out, Extra(**published.extra), max_shard_size="60KB")
        assert_same_weights(pipeline.target, published.model)
        tokenizer = published.tokenizer if published.tokenizer is not None else pipeline.tokenizer
        reference = CSDAutoregressivePipeline(published.model, tokenizer, **build_parts(read_preset("exact")))
        tokens = draw(reference, published.prompt)
        assert_same_pixels(pipeline.target, published.model, tokens)
        results[name] = (out, tokens)
    return results


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_converted_folder_draws_what_the_published_model_draws(checkpoints, converted, name):
    folder, tokens = converted[name]
    assert len(list((folder / "target").glob("*.safetensors"))) > 1  # in shards
    assert not list(folder.rglob("*.bin"))
    pipeline = CSDAutoregressivePipeline.from_pretrained(folder)
    assert_same_weights(pipeline.target, checkpoints(name).model)
    assert draw(pipeline, checkpoints(name).prompt) == tokens
    assert type(pipeline.relaxation).__name__ == "Exact"


def test_diffusers_loads_every_converted_folder_in_a_process_without_network(checkpoints, converted, tmp_path):
    jobs = [(str(folder), checkpoints(name).prompt) for name, (folder, _) in converted.items()]
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "HF_MODULES_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DIFFUSERS, json.dumps(jobs)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    tokens = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert tokens == [tokens for _, tokens in converted.values()]


@pytest.mark.parametrize("name", WITHOUT_EXTRA)
def test_a_layout_that_is_whole_loads_directly(checkpoints, converted, name):
    published = checkpoints(name)
    pipeline = CSDAutoregressivePipeline.from_pretrained(published.source)
    assert_same_weights(pipeline.target, published.model)
    assert draw(pipeline, published.prompt) == converted[name][1]


@pytest.mark.parametrize("name", ["janus-original", "chameleon-official"])
def test_dtypes_and_given_parts_are_honoured(checkpoints, name):
    published = checkpoints(name)
    kept = CSDAutoregressivePipeline.from_pretrained(published.source, dtype="auto", tokenizer=None)
    assert kept.target.dtype == torch.float32 and kept.tokenizer is None
    half = CSDAutoregressivePipeline.from_pretrained(published.source, torch_dtype=torch.bfloat16)
    assert {p.dtype for p in half.target.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("name", ["chameleon-folder", "lumina-folder", "emu3-original", "llamagen-text"])
def test_a_layout_that_needs_a_second_file_says_the_one_line(checkpoints, name):
    published = checkpoints(name)
    options = "--vq .* --text-encoder FOLDER" if name == "llamagen-text" else "--vq "
    with pytest.raises(ValueError, match=f"run: csd convert {published.source} OUT {options}"):
        CSDAutoregressivePipeline.from_pretrained(published.source)


def test_what_only_transformers_can_do_is_refused_with_the_way_there(checkpoints):
    with pytest.raises(ValueError, match="device_map can not be given .* run `csd convert` first"):
        CSDAutoregressivePipeline.from_pretrained(checkpoints("janus-original").source, device_map="cpu")


@pytest.mark.parametrize(("name", "usual"), [("lumina-folder", (96, 96)), ("emu3-original", (64, 64))])
def test_the_picture_size_of_the_published_config_survives(converted, name, usual):
    target = CSDAutoregressivePipeline.from_pretrained(converted[name][0]).target
    sizes = adapter_for(target).sizes
    assert sizes[0] == usual and len(sizes) > 1


def test_out_must_be_empty_and_extra_files_must_be_needed(checkpoints, tmp_path):
    published = checkpoints("anole-folder")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept.txt").write_text("mine")
    with pytest.raises(ValueError, match="out is not empty"):
        convert(published.source, tmp_path / "out")
    with pytest.raises(ValueError, match="needs no vq"):
        convert(published.source, tmp_path / "other", Extra(vq=published.source))


def test_the_tokenizer_of_the_original_janus_is_repaired(checkpoints):
    """BOS, padding and control tokens as the published code takes for granted, whatever the settings name."""
    reference = checkpoints("janus-original-bin-no-pad").tokenizer
    for name in ("janus-original", "janus-original-bin-no-pad"):
        tokenizer = open_checkpoint(checkpoints(name).source).load_tokenizer()
        assert tokenizer("red cat").input_ids == reference("red cat").input_ids
        assert (tokenizer.bos_token_id, tokenizer.pad_token_id) == (reference.bos_token_id, reference.pad_token_id)
        assert {"<image_placeholder>", "<|User|>"} <= set(tokenizer.all_special_tokens)
        assert len(tokenizer) == len(reference)


@pytest.mark.parametrize(
    ("config", "downloaded"), [({"model_type": "multi_modality"}, True), ({"model_type": "janus"}, False)]
)
def test_hub_ids_of_other_layouts_are_downloaded_whole_with_the_usual_arguments(
    checkpoints, monkeypatch, config, downloaded
):
    asked = {}

    def snapshot(repo_id, **arguments):
        asked.update(arguments, repo_id=repo_id)
        return str(checkpoints("janus-original").source)

    monkeypatch.setattr("transformers.PretrainedConfig.get_config_dict", lambda source, **hub: (config, {}))
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    hub = {"revision": "abc", "cache_dir": "somewhere", "local_files_only": True, "token": "t"}
    place = fetch("owner/Janus", hub)
    if not downloaded:
        assert place == "owner/Janus" and not asked
        return
    assert place == str(checkpoints("janus-original").source)
    assert asked | hub == asked and asked["repo_id"] == "owner/Janus"
    assert "*.bin" in asked["allow_patterns"] and "*.py" not in asked["allow_patterns"]
