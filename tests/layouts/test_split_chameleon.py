"""Chameleon cut for several devices, against what those devices compute and against its other layouts."""

import json
import shutil

import pytest
import torch
from families import chameleon
from published.chameleon_folder import write_folder
from published.chameleon_official import OF_30B, RANKS, alike_within, write_official
from published.files import read_weights, write_json, write_weights
from torch.nn import functional

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.layouts import open_checkpoint
from csd_pipeline.weight_files import IncompleteCheckpoint, describe


def devices_forward(parts: list[dict], numbers: dict, ids: torch.Tensor) -> torch.Tensor:
    """[T] ids -> [T, vocabulary] logits as the devices make them: each from its own file, sums and joins between."""
    heads, groups, width = numbers["n_heads"] // RANKS, numbers["n_kv_heads"] // RANKS, numbers["dim"]
    size, eps = width // numbers["n_heads"], numbers["norm_eps"]
    angles = torch.arange(len(ids))[:, None] * numbers["rope_theta"] ** (-torch.arange(0, size, 2) / size)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]
    causal = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()

    def norm(x, weight):
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight

    def rotated(x, count, weights, name):
        x = x.unflatten(-1, (count, size))
        x = functional.layer_norm(x, (size,), weights[name + ".weight"], weights[name + ".bias"], eps=1e-5)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)

    def attention(x, weights, layer):
        name = f"layers.{layer}.attention."
        q = rotated(x @ weights[name + "wq.weight"].T, heads, weights, name + "q_normalization")
        k = rotated(x @ weights[name + "wk.weight"].T, groups, weights, name + "k_normalization")
        v = (x @ weights[name + "wv.weight"].T).unflatten(-1, (groups, size))
        k, v = (part.repeat_interleave(heads // groups, 1) for part in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / size**0.5
        scores = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        return torch.einsum("hij,jhd->ihd", scores, v).flatten(1) @ weights[name + "wo.weight"].T

    def feed_forward(x, weights, layer):
        name = f"layers.{layer}.feed_forward."
        gated = functional.silu(x @ weights[name + "w1.weight"].T) * (x @ weights[name + "w3.weight"].T)
        return gated @ weights[name + "w2.weight"].T

    x = torch.cat([weights["tok_embeddings.weight"][ids] for weights in parts], -1)
    for layer in range(numbers["n_layers"]):
        x = x + norm(sum(attention(x, w, layer) for w in parts), parts[0][f"layers.{layer}.attention_norm.weight"])
        x = x + norm(sum(feed_forward(x, w, layer) for w in parts), parts[0][f"layers.{layer}.ffn_norm.weight"])
    x = norm(x, parts[0]["norm.weight"])
    return torch.cat([x @ weights["output.weight"].T for weights in parts], -1)


def test_logits_are_those_of_the_devices_that_hold_the_files(checkpoints):
    published = checkpoints("chameleon-parallel")
    place = published.weights.parent
    parts = [read_weights(file) for file in sorted(place.glob("*.pth"))]
    norms = [part["layers.0.attention.q_normalization.weight"] for part in parts]
    assert len(parts) == RANKS and not torch.equal(norms[0], norms[1])
    ids = torch.randint(0, 62, (17,), generator=torch.Generator().manual_seed(3))
    target = CSDAutoregressivePipeline.from_pretrained(published.source).target
    with torch.no_grad():
        expected = devices_forward(parts, json.loads((place / "params.json").read_text())["model"], ids)
        got = target.lm_head(target.model(input_ids=ids[None], use_cache=False).last_hidden_state)[0]
    assert torch.allclose(got, expected, atol=1e-4)


def test_one_file_four_files_and_the_folder_of_transformers_draw_the_same(tmp_path):
    part = chameleon(**OF_30B)
    alike_within(part.model, devices=1)
    sources = [
        write_official(tmp_path / "one", part, devices=1).source,
        write_official(tmp_path / "four", part, devices=RANKS).source,
        write_folder(tmp_path / "folder", part, "ChameleonForConditionalGeneration", "no tensor").source,
    ]
    drawn = []
    for source in sources:
        pipeline = CSDAutoregressivePipeline.from_pretrained(source)
        pipeline.set_progress_bar_config(disable=True)
        drawn.append(pipeline("red cat", temperature=0.0, output_type="latent").images.tolist())
    assert drawn[0] == drawn[1] == drawn[2]


@pytest.fixture
def copy(checkpoints, tmp_path):
    """The folder of the four files, to change; and the path of one of them."""
    published = checkpoints("chameleon-parallel")
    folder = shutil.copytree(published.source, tmp_path / "copy")
    return folder, folder / published.weights.relative_to(published.source)


def test_copies_that_drifted_apart_are_averaged(copy):
    folder, file = copy
    tensors = read_weights(file)
    before = tensors["norm.weight"]
    write_weights(file, tensors | {"norm.weight": before + 4.0})
    assert torch.allclose(CSDAutoregressivePipeline.from_pretrained(folder).target.model.norm.weight, before + 1.0)


def test_a_missing_file_and_one_too_many_are_named(copy):
    folder, file = copy
    shutil.copy(file, file.with_name("consolidated.04.pth"))
    with pytest.raises(IncompleteCheckpoint, match=r"must hold 4 weight files, .*00.pth to .*03.pth.*there are 5"):
        open_checkpoint(folder)
    file.with_name("consolidated.04.pth").unlink()
    file.unlink()
    with pytest.raises(IncompleteCheckpoint, match=f"must hold 4 weight files, .*; missing: {file.name}"):
        open_checkpoint(folder)


def test_without_a_stated_number_all_files_are_parts(copy, checkpoints):
    folder, file = copy
    numbers = json.loads((file.parent / "params.json").read_text())["model"]
    write_json(file.parent / "params.json", numbers)
    (file.parent / "consolidate_params.json").unlink()
    target = CSDAutoregressivePipeline.from_pretrained(folder).target
    model = checkpoints("chameleon-parallel").model
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in target.state_dict().items())


def test_of_two_models_in_a_download_each_is_reached_by_its_own_folder(copy, checkpoints):
    folder, file = copy
    small = checkpoints("chameleon-official")
    shutil.copytree(small.weights.parent, folder / "models" / "7b")
    with pytest.raises(IncompleteCheckpoint, match="several models; give the folder of one: .*30b or .*7b"):
        open_checkpoint(folder)
    shapes = {"7b": describe(small.weights)["output.weight"].shape, "30b": (64, 32)}
    for name, shape in shapes.items():
        target = CSDAutoregressivePipeline.from_pretrained(folder / "models" / name).target
        assert target.lm_head.weight.shape == shape
        assert target.config.num_attention_heads == {"7b": 4, "30b": 8}[name]
