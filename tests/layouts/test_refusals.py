"""Broken downloads, layout by layout: refused by the name of what is wrong, before any weight is in place."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from published import LAYOUTS, WITHOUT_EXTRA, read_weights, write_weights

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.conversion import convert
from csd_pipeline.layouts import Extra, assemble, open_checkpoint
from csd_pipeline.weight_files import IncompleteCheckpoint, describe

every_layout = pytest.mark.parametrize("name", LAYOUTS)
SPLIT = {"chameleon-parallel"}  # one of four files is broken there: the others are its measure
every_whole_layout = pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in SPLIT])


@pytest.fixture
def broken(checkpoints, tmp_path, monkeypatch):
    """A copy to break; whoever fills a target with weights fails the test."""

    def refuse(*_, **__):
        raise AssertionError("weights were read")

    def copy(name):
        published = checkpoints(name)
        root, folder = published.source, tmp_path / "copy"
        if root.is_file():
            root = root.parent
        shutil.copytree(root, folder)
        there = {id(path): folder / path.relative_to(root) for path in (published.weights, *published.texts)}
        source = folder / published.source.name if published.source.is_file() else folder
        extra = {
            kind: folder / path.relative_to(root) if path.is_relative_to(root) else path
            for kind, path in published.extra.items()
        }
        texts = [there[id(path)] for path in published.texts]
        return replace(published, source=source, weights=there[id(published.weights)], texts=texts, extra=extra)

    monkeypatch.setattr("csd_pipeline.layouts.assemble.read", refuse)
    monkeypatch.setattr("transformers.modeling_utils.PreTrainedModel.from_pretrained", refuse)
    return copy


def refused(published, out, match):
    with pytest.raises(IncompleteCheckpoint, match=match):
        convert(published.source, out, Extra(**published.extra))
    assert not out.exists()


def change(published, edit):
    tensors = read_weights(published.weights)
    edit(tensors)
    write_weights(published.weights, tensors)


@every_whole_layout
def test_a_missing_tensor(broken, tmp_path, name):
    published = broken(name)
    change(published, lambda tensors: tensors.pop(published.key))
    refused(published, tmp_path / "out", r"[13] of \d+ tensors of \w+ are missing, first: (model\.)?\w+\.")


@every_whole_layout
def test_a_renamed_tensor(broken, tmp_path, name):
    published = broken(name)
    change(published, lambda tensors: tensors.update({"some.other.name": tensors.pop(published.key)}))
    refused(published, tmp_path / "out", "are missing, first: .* have no place in .*, first: some.other.name")


@every_whole_layout
def test_a_tensor_too_many(broken, tmp_path, name):
    published = broken(name)
    change(published, lambda tensors: tensors.update({"model.adapter.weight": torch.zeros(2, 2)}))
    refused(published, tmp_path / "out", r"1 stored tensors have no place in \w+, first: model.adapter.weight")


@every_whole_layout
def test_a_tensor_of_another_shape(broken, tmp_path, name):
    published = broken(name)
    change(published, lambda tensors: tensors.update({published.key: tensors[published.key][:-1]}))
    last = published.key.split(".")[-2]
    refused(published, tmp_path / "out", rf"1 tensors do not have the shape .*{last}.* is \[.*\] instead of \[.*\]")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda t, key: t.pop(key), "03.pth has no part of tensor 'layers.1.attention.wq.weight', which .*00.pth has"),
        (lambda t, key: t.update({"other": t.pop(key)}), "03.pth has no part of tensor '.*', which .*00.pth has"),
        (
            lambda t, key: t.update({"model.adapter.weight": torch.zeros(2, 2)}),
            "00.pth has no part of .*adapter.*03.pth",
        ),
        (
            lambda t, key: t.update({key: t[key][:-1]}),
            r"03.pth: the part of tensor .* is \[7, 32\], in .* it is \[8, 32\]",
        ),
    ],
)
def test_a_file_that_does_not_go_with_the_others(broken, tmp_path, edit, match):
    published = broken("chameleon-parallel")
    change(published, lambda tensors: edit(tensors, published.key))
    refused(published, tmp_path / "out", match)


def test_a_tensor_missing_from_every_file_of_a_split_model(broken, tmp_path):
    published = broken("chameleon-parallel")
    for file in published.weights.parent.glob("*.pth"):
        tensors = read_weights(file)
        del tensors[published.key]
        write_weights(file, tensors)
    refused(
        published, tmp_path / "out", r"1 of \d+ tensors of ChameleonWithPixels are missing, first: model.layers.1.self"
    )


@every_layout
def test_a_truncated_file(broken, tmp_path, name):
    published = broken(name)
    published.weights.write_bytes(published.weights.read_bytes()[:-2000])
    refused(
        published, tmp_path / "out", f"{published.weights.name}.* is truncated or damaged|{published.weights.name} has "
    )


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "llamagen-class"])
def test_no_tokenizer(broken, tmp_path, name):
    published = broken(name)
    for place in {text.parent for text in published.texts}:
        for file in [*place.glob("*token*.json"), *place.glob("*.tiktoken"), *place.glob("*vision_tokens.txt")]:
            file.unlink()
    official = name in ("chameleon-official", "chameleon-parallel")
    missing = "text_tokenizer.json is missing" if official else "has no tokenizer"
    refused(published, tmp_path / "out", missing)


@pytest.mark.parametrize("name", ["janus-original", "janus-original-bin-no-pad", "emu3-original"])
def test_a_missing_shard(broken, tmp_path, name):
    published = broken(name)
    published.weights.unlink()
    refused(published, tmp_path / "out", f"1 of 2 weight files of .* missing, first: {published.weights.name}")


@pytest.mark.parametrize("name", WITHOUT_EXTRA)
def test_loading_directly_refuses_too(broken, name):
    published = broken(name)
    change(published, lambda tensors: tensors.pop(published.key))
    with pytest.raises(IncompleteCheckpoint, match="has no part of" if name in SPLIT else "are missing, first: "):
        CSDAutoregressivePipeline.from_pretrained(published.source)


def test_files_of_the_official_chameleon_folder_are_named(broken, tmp_path):
    published = broken("chameleon-official")
    (published.source / "tokenizer" / "vqgan.ckpt").unlink()
    refused(published, tmp_path / "out", "no vqgan.ckpt at .*GAIR/Anole-7b-v0.1")
    published.weights.rename(published.weights.with_name("consolidated.01.pth"))
    refused(published, tmp_path / "out", "must hold 1 weight files, .*missing: consolidated.00.pth")
    published.weights.with_name("consolidated.01.pth").unlink()
    refused(published, tmp_path / "out", "has no consolidated.pth; it belongs beside params.json")


@pytest.mark.parametrize("name", ["chameleon-folder", "llamagen-class", "emu3-original"])
def test_a_wrong_picture_decoder(broken, tmp_path, name):
    published = broken(name)
    other = tmp_path / "other.pt"
    torch.save({"model": {"weight": torch.zeros(2)}}, other)
    if name == "emu3-original":
        shutil.rmtree(tmp_path / "copy-vq", ignore_errors=True)
        (tmp_path / "copy-vq").mkdir()
        refused(replace(published, extra={"vq": tmp_path / "copy-vq"}), tmp_path / "out", "copy-vq has no config.json")
        return
    wrong = replace(published, extra={"vq": other})
    refused(wrong, tmp_path / "out", "holds no tensor|are missing, first: .*decoder.*first: weight")


def test_pickled_objects_are_not_run(broken, tmp_path):
    published = broken("llamagen-class")
    torch.save({"model": {"x": print}}, published.weights)
    refused(published, tmp_path / "out", "c2i_tiny.pt holds more than tensors, or is no weight file")


def test_a_file_that_is_no_llamagen(broken, tmp_path):
    published = broken("llamagen-class")
    write_weights(published.weights, {"weight": torch.zeros(2)})
    refused(published, tmp_path / "out", "is no LlamaGen file: it holds no tok_embeddings.weight, layers.0")
    (tmp_path / "notes.md").write_text("#")
    with pytest.raises(IncompleteCheckpoint, match="notes.md is no weight file"):
        CSDAutoregressivePipeline.from_pretrained(tmp_path / "notes.md")


@pytest.mark.parametrize(("layers", "width", "heads"), [(36, 1280, 20), (24, 3200, 32)])
def test_llamagen_sizes_come_from_the_shapes_and_the_published_name(tmp_path, layers, width, heads):
    """A file of the published sizes that takes no room: every tensor repeats one number."""

    def tensor(*shape):
        return torch.zeros(1).expand(shape)

    tensors = {
        "tok_embeddings.weight": tensor(16384, width),
        "cls_embedding.embedding_table.weight": tensor(1001, width),
    }
    for layer in range(layers):
        tensors[f"layers.{layer}.attention.wqkv.weight"] = tensor(3 * width, width)
        tensors[f"layers.{layer}.feed_forward.w1.weight"] = tensor(3584, width)
    file = tmp_path / "c2i_XL_384.pt"
    torch.save({"model": tensors}, file)
    model = assemble.skeleton(open_checkpoint(file))
    config = model.config
    assert (config.num_heads, config.num_layers, config.grid_side, config.classes) == (heads, layers, 24, 1000)
    assert config.condition == "class" and model.vq.decoder.conv_in.weight.shape == (512, 256, 3, 3)
    with pytest.raises(IncompleteCheckpoint, match="must tell its picture size, as published: one of 256, 384, 512"):
        open_checkpoint(file.rename(tmp_path / "model.pt"))


@pytest.mark.parametrize(
    ("folder", "side"), [("Lumina-mGPT-7B-512", 512), ("Lumina-mGPT-7B-1024", 1024), ("mine", 768)]
)
def test_the_side_lumina_was_trained_for_is_written_down(broken, tmp_path, folder, side):
    published = broken("lumina-folder")
    place = published.source.rename(tmp_path / folder)
    config = json.loads((place / "config.json").read_text())
    del config["image_side"]
    (place / "config.json").write_text(json.dumps(config))
    assert assemble.skeleton(open_checkpoint(place, Extra(**published.extra))).config.image_side == side


def test_torch_files_are_described_without_their_tensors(checkpoints):
    for name in ("llamagen-class", "janus-original-bin-no-pad", "chameleon-official"):
        described = describe(checkpoints(name).weights)
        stored = read_weights(checkpoints(name).weights)
        assert {k: (v.shape, v.dtype) for k, v in described.items()} == {
            k: (v.shape, v.dtype) for k, v in stored.items()
        }
        assert {tensor.device.type for tensor in described.values()} == {"meta"}
