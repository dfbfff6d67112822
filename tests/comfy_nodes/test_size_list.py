"""Sizes are read from a config, before any weight."""

import json

import pytest
from families import lumina
from published import LAYOUTS

from comfy_nodes.sizes import sizes_of
from csd_pipeline.targets import adapter_for


def wide_and_high(model) -> list[tuple[int, int]]:
    return [(width, height) for height, width in adapter_for(model).sizes]


@pytest.fixture
def folder(tmp_path):
    """A model of seven sizes, as transformers saves it."""
    family = lumina()
    for part in (family.model, family.tokenizer):
        part.save_pretrained(tmp_path / "lumina")
    return tmp_path / "lumina"


def test_the_embedded_model_draws_one_size():
    assert sizes_of("embedded", []) == [(128, 128)]


def test_sizes_of_a_transformers_folder_are_width_by_height_the_usual_first(folder):
    sizes = sizes_of("lumina", [folder.parent])
    assert sizes == wide_and_high(lumina().model)
    assert sizes[0] == (96, 96) and len(set(sizes)) == len(sizes) == 7


def test_no_weight_is_read(folder, monkeypatch):
    def read(*args, **kwargs):
        raise AssertionError("a tensor was read")

    monkeypatch.setattr("safetensors.torch.load_file", read)
    monkeypatch.setattr("torch.load", read)
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", read)
    assert len(sizes_of("lumina", [folder.parent])) == 7


def test_a_published_layout_is_read_too(tmp_path):
    published = LAYOUTS["chameleon-official"](tmp_path / "models")
    name = str(published.source.relative_to(tmp_path))
    assert sizes_of(name, [tmp_path]) == wide_and_high(published.model)


def test_a_changed_config_is_read_again(folder):
    before = sizes_of("lumina", [folder.parent])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"image_side": 64}))
    assert sizes_of("lumina", [folder.parent]) != before


def test_a_model_that_is_missing_or_broken_is_named(folder):
    with pytest.raises(ValueError, match="no model folder 'nothing'"):
        sizes_of("nothing", [folder.parent])
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="model.safetensors"):
        sizes_of("lumina", [folder.parent])
