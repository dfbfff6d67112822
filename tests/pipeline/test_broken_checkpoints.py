"""Broken checkpoints are refused with the name of what is broken; never a picture from half-loaded weights."""

import json
import shutil

import pytest
import torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file, save_file
from tiny_janus import PROMPT, draw

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.weight_files import IncompleteCheckpoint, stored_shapes

load = CSDAutoregressivePipeline.from_pretrained


@pytest.fixture(params=["stock", "saved"])
def folder(request, tmp_path):
    """A copy to break."""
    return shutil.copytree(request.getfixturevalue(request.param), tmp_path / request.param)


def weights(folder):
    return folder / "target" if (folder / "target").is_dir() else folder


def text(folder):
    return folder / "tokenizer" if (folder / "tokenizer").is_dir() else folder


def rewrite(folder, change):
    """Change the dict of tensors of a checkpoint."""
    file = weights(folder) / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def edit(file, **entries):
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def shard(folder):
    """Two weight files and an index, as large models have them."""
    place = weights(folder)
    tensors = sorted(load_file(place / "model.safetensors").items())
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    parts = [dict(tensors[: len(tensors) // 2]), dict(tensors[len(tensors) // 2 :])]
    for name, part in zip(names, parts, strict=True):
        save_file(part, place / name, {"format": "pt"})
    index = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (place / "model.safetensors").unlink()
    return [place / name for name in names]


@pytest.mark.parametrize("source", ["no/such/folder", "./nothing", "/nothing/here", "embeded", "~/nothing-here"])
def test_a_folder_that_does_not_exist(source):
    with pytest.raises(ValueError, match=f"no folder '{source}'") as refusal:
        load(source)
    assert "give a saved pipeline folder, a transformers checkpoint folder, a hub id" in str(refusal.value)
    assert ("did you mean 'embedded'" in str(refusal.value)) == (source == "embeded")


def test_an_empty_folder(tmp_path):
    with pytest.raises(IncompleteCheckpoint, match="is empty; it needs a saved pipeline or a transformers checkpoint"):
        load(tmp_path)


def test_the_folder_of_another_pipeline(tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline", "unet": []}))
    with pytest.raises(IncompleteCheckpoint, match="holds a StableDiffusionPipeline, not a CSDAutoregressivePipeline"):
        load(tmp_path)


def test_whole_shards_load(folder, shared):
    shard(folder)
    loaded = load(folder, **{name: getattr(shared, name) for name in ("drafter", "relaxation", "alignment_filter")})
    assert torch.equal(draw(loaded), draw(shared))


def test_a_missing_shard(folder):
    shard(folder)[1].unlink()
    with pytest.raises(IncompleteCheckpoint, match="1 of 2 weight files .* missing, first: model-00002-of-00002"):
        load(folder)


@pytest.mark.parametrize("keep", [4, 60, -1000])
def test_a_truncated_shard(folder, keep):
    file = shard(folder)[0]
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(IncompleteCheckpoint, match="model-00001-of-00002.safetensors .*truncated"):
        load(folder)


def test_a_file_that_is_no_safetensors(folder):
    (weights(folder) / "model.safetensors").write_bytes(b"\x08" + b"\0" * 7 + b"not json")
    with pytest.raises(IncompleteCheckpoint, match="is no safetensors file"):
        load(folder)


def test_no_weights(folder):
    (weights(folder) / "model.safetensors").unlink()
    with pytest.raises(IncompleteCheckpoint, match="has no model.safetensors"):
        load(folder)


def drop_decoder(tensors):
    for name in [name for name in tensors if ".vqmodel.decoder." in name]:
        del tensors[name]


def drop_two(tensors):
    del tensors["model.generation_head.proj_out.weight"], tensors["model.generation_embeddings.weight"]


@pytest.mark.parametrize(
    "change, message",
    [
        (
            drop_two,
            r"2 of \d+ tensors .* missing, first: model.generation_embeddings.weight, model.generation_head.proj",
        ),
        (drop_decoder, r"tensors of JanusForConditionalGeneration are missing, first: model.vqmodel.decoder"),
    ],
)
def test_missing_tensors(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(IncompleteCheckpoint, match=message):
        load(folder)
    with pytest.raises(IncompleteCheckpoint, match=message):
        load(folder, dtype="auto")


@pytest.mark.parametrize("change", [drop_two, drop_decoder])
def test_missing_tensors_through_diffusers_own_loader(plain, tmp_path, change):
    folder = shutil.copytree(plain, tmp_path / "plain")
    rewrite(folder, change)
    with pytest.raises(
        IncompleteCheckpoint, match="tensors of JanusForConditionalGeneration are missing, first: model"
    ):
        DiffusionPipeline.from_pretrained(folder)


def test_a_broken_file_through_diffusers_own_loader(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "plain")
    file = weights(folder) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(Exception, match="(?i)incomplete|invalid|truncated"):
        DiffusionPipeline.from_pretrained(folder)


def test_a_tensor_of_the_wrong_shape(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.generation_embeddings.weight": torch.zeros(31, 8)}))
    message = r"1 tensors do not have the shape .* model.generation_embeddings.weight is \[31, 8\] instead of \[32, 8\]"
    with pytest.raises(IncompleteCheckpoint, match=message):
        load(folder)


def test_tied_weights_may_be_stored_once(folder):
    edit(weights(folder) / "config.json", tie_word_embeddings=True)
    rewrite(folder, lambda tensors: tensors.pop("lm_head.weight", None))
    assert "lm_head.weight" not in stored_shapes(weights(folder))
    assert load(folder)(PROMPT, seed=1).complete


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_json_that_is_broken(folder, name):
    file = (weights if name == "config.json" else text)(folder) / name
    file.write_text(file.read_text()[:-5])
    with pytest.raises(IncompleteCheckpoint, match=f"{name} is no valid JSON"):
        load(folder)
    file.write_text("[]")
    with pytest.raises(IncompleteCheckpoint, match=f"{name} holds a list, not a JSON object"):
        load(folder)


def test_a_broken_model_index(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "saved")
    (folder / "model_index.json").write_text("{")
    with pytest.raises(IncompleteCheckpoint, match="model_index.json is no valid JSON"):
        load(folder)


def test_no_tokenizer(folder, shared):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (text(folder) / name).unlink()
    with pytest.raises(IncompleteCheckpoint, match="has no tokenizer; one of tokenizer.json, .* belongs there"):
        load(folder)
    assert load(folder, tokenizer=shared.tokenizer).tokenizer is shared.tokenizer


def test_no_config(folder):
    (weights(folder) / "config.json").unlink()
    with pytest.raises(IncompleteCheckpoint, match="has no config.json"):
        load(folder)


def test_a_kind_of_model_without_adapter(folder):
    edit(weights(folder) / "config.json", model_type="llama")
    with pytest.raises(IncompleteCheckpoint, match="holds a model of type 'llama'; supported types: janus"):
        load(folder)


def test_the_config_of_one_layout_over_the_weights_of_another(stock, tmp_path):
    folder = shutil.copytree(stock, tmp_path / "stock")
    edit(folder / "config.json", model_type="multi_modality")
    with pytest.raises(IncompleteCheckpoint, match="holds no 'gen_head_config', which Janus has"):
        load(folder)


def test_a_tensor_too_many(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.adapter.weight": torch.zeros(2, 2)}))
    with pytest.raises(IncompleteCheckpoint, match="1 stored tensors have no place in Janus.*, first: model.adapter.w"):
        load(folder)


def test_tensors_that_follow_from_the_config_or_serve_training_are_no_fault(folder):
    extra = {"model.language_model.rotary_emb.inv_freq": torch.zeros(4), "model.vqmodel.loss.weight": torch.zeros(2)}
    rewrite(folder, lambda tensors: tensors.update(extra))
    assert load(folder)(PROMPT, seed=1).complete


def test_an_unknown_knob_of_a_stored_part(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "saved")
    edit(folder / "drafter" / "drafter_config.json", window=0)
    with pytest.raises(ValueError, match="window must be an integer >= 1, got 0"):
        load(folder)


def test_without_generation_config(folder):
    (weights(folder) / "generation_config.json").unlink()
    assert load(folder)(PROMPT, seed=1).recipes[0]["guidance_scale"] == 5.0


def test_weights_that_went_after_loading_do_no_harm(folder, shared):
    pipeline = load(folder)
    (weights(folder) / "model.safetensors").unlink()
    assert CSDAutoregressivePipeline(**pipeline.components).target is pipeline.target
