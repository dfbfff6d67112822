"""Folders as people have them: other names, links, half a download, the wrong level, one variant."""

import shutil
from pathlib import Path

import pytest
from published import read_weights

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.conversion import convert
from csd_pipeline.weight_files import IncompleteCheckpoint

load = CSDAutoregressivePipeline.from_pretrained


@pytest.fixture
def janus(checkpoints, tmp_path):
    """A copy of an original Janus folder."""
    return shutil.copytree(checkpoints("janus-original").source, tmp_path / "Bilder und Ümläute 模型")


def snapshot(folder: Path, home: Path) -> Path:
    """``folder`` as the hub's cache keeps it: links into a folder of blobs."""
    blobs, place = home / "blobs", home / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    place.mkdir(parents=True)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, blobs / f"{number:064x}")
        (place / file.name).symlink_to(Path("../../blobs") / f"{number:064x}")
    return place


def same_weights(target, published) -> bool:
    expected = published.model.state_dict()
    return all(bool((tensor == expected[name]).all()) for name, tensor in target.state_dict().items())


def test_names_links_and_write_protection_do_not_matter(checkpoints, janus, tmp_path):
    published = checkpoints("janus-original")
    assert same_weights(load(janus).target, published)
    assert same_weights(load(snapshot(janus, tmp_path / "hub")).target, published)
    for file in janus.iterdir():
        file.chmod(0o444)
    janus.chmod(0o555)
    assert same_weights(load(f"{janus}/").target, published)
    assert same_weights(convert(janus, tmp_path / "fertig ü").target, published)
    assert same_weights(load(tmp_path / "fertig ü").target, published)


def test_a_link_into_nothing_is_a_missing_file(checkpoints, janus, tmp_path):
    place = snapshot(janus, tmp_path / "hub")
    file = place / checkpoints("janus-original").weights.name
    file.resolve().unlink()
    with pytest.raises(IncompleteCheckpoint, match=f"1 of 2 weight files of .* missing, first: {file.name}"):
        load(place)


def test_a_level_too_high_says_where_the_checkpoint_is(janus, tmp_path):
    place = snapshot(janus, tmp_path / "models--deepseek-ai--Janus")
    with pytest.raises(IncompleteCheckpoint, match=rf"has no config.json; .*; did you mean {place}\?"):
        load(tmp_path / "models--deepseek-ai--Janus")
    with pytest.raises(IncompleteCheckpoint, match=rf"did you mean {janus}\?"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["janus-original", "anole-folder"])
def test_subfolder_of_a_local_folder(checkpoints, tmp_path, name):
    published = checkpoints(name)
    shutil.copytree(published.source, tmp_path / "all" / "inner")
    assert same_weights(load(tmp_path / "all", subfolder="inner").target, published)
    with pytest.raises(ValueError, match="all has no folder 'nope'; leave subfolder out"):
        load(tmp_path / "all", subfolder="nope")


def test_a_folder_of_one_variant_says_so(checkpoints, tmp_path):
    published = checkpoints("anole-folder")
    load(published.source).save_pretrained(tmp_path / "saved", variant="fp16")
    assert same_weights(load(tmp_path / "saved", variant="fp16").target, published)
    with pytest.raises(IncompleteCheckpoint, match="holds weights of the variant 'fp16' only; give variant='fp16'"):
        load(tmp_path / "saved")


def test_pointers_of_git_lfs_are_no_damaged_files(checkpoints, janus):
    name = checkpoints("janus-original").weights.name
    (janus / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    with pytest.raises(IncompleteCheckpoint, match=f"{name} is a pointer of Git LFS.* `git lfs pull`"):
        load(janus)


def test_gguf_files_can_not_draw(tmp_path):
    (tmp_path / "Janus-Pro-1B-Q4.gguf").write_bytes(b"GGUF" + bytes(60))
    for place in (tmp_path / "Janus-Pro-1B-Q4.gguf", tmp_path):
        with pytest.raises(IncompleteCheckpoint, match="without the heads and the decoder of picture codes"):
            load(place)


def test_both_kinds_of_weight_files_are_one_checkpoint(checkpoints, janus):
    other = checkpoints("janus-original-bin-no-pad")
    for file in other.source.glob("*.bin*"):
        shutil.copy(file, janus)
    assert read_weights(other.weights)
    assert same_weights(load(janus).target, checkpoints("janus-original"))


@pytest.mark.parametrize("source", [None, b"folder", ""])
def test_what_is_no_source(source):
    with pytest.raises(ValueError, match="give a folder, a file, a hub id like 'owner/name', or 'embedded', got"):
        load(source)


def test_out_under_a_file_is_refused_before_weights_are_read(janus, tmp_path, monkeypatch):
    monkeypatch.setattr("csd_pipeline.layouts.assemble.read", lambda *_: pytest.fail("weights were read"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=f"can not be made: {tmp_path / 'file'} is a file"):
        convert(janus, tmp_path / "file" / "out")
