import os
import threading

import pytest

from csd_pipeline.cli.files import Destination, slug, write_whole


def test_nothing_is_replaced_unasked(tmp_path):
    paths = [write_whole(tmp_path / "a.png", text, overwrite=False) for text in (b"1", b"2", b"3")]
    assert [path.name for path in paths] == ["a.png", "a-1.png", "a-2.png"]
    assert [path.read_bytes() for path in paths] == [b"1", b"2", b"3"]
    assert write_whole(tmp_path / "a.png", b"4", overwrite=True).read_bytes() == b"4"
    assert len(list(tmp_path.iterdir())) == 3  # no temporary file stays


def test_writers_at_once_get_names_of_their_own(tmp_path):
    def write(number):
        write_whole(tmp_path / "a.png", bytes([number]), overwrite=False)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.read_bytes()[0] for path in tmp_path.iterdir()) == list(range(16))


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "a.png", b"1", overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_file_systems_without_hard_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    names = [write_whole(tmp_path / "a.png", b"1", overwrite=False).name for _ in range(2)]
    assert names == ["a.png", "a-1.png"]


def test_overwriting_spares_files_of_the_same_job(tmp_path):
    for _ in range(2):
        destination = Destination.of(str(tmp_path / "new" / "fox.png"), overwrite=True)
        names = [destination.write_picture(b"x", "a fox", seed).name for seed in (1, 2)]
        assert names == ["fox.png", "fox-1.png"]


def test_a_name_is_made_from_prompt_and_seed(tmp_path):
    destination = Destination.of(str(tmp_path), overwrite=False)
    assert destination.write_picture(b"x", "A red fox, on ice!", 7).name == "a-red-fox-on-ice-7.png"
    assert destination.write_picture(b"x", "A red fox, on ice!", 7).name == "a-red-fox-on-ice-7-1.png"


def test_slugs():
    assert slug("") == slug("!?/..") == "picture"
    assert slug("../../etc/passwd") == "etc-passwd"
    assert slug("Füchse 狐") == "füchse-狐"
    assert len(slug("word " * 500)) <= 48


def test_formats_without_a_place_for_the_recipe_are_refused(tmp_path):
    with pytest.raises(ValueError, match="saved as .png"):
        Destination.of(str(tmp_path / "a.jpg"), overwrite=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        Destination.of(str(tmp_path / "file" / "a.png"), overwrite=False)
