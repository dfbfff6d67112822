"""Which models are offered, and what is said where one is missing."""

import pytest

from comfy_nodes.model_folders import find_model, list_models


@pytest.fixture
def roots(tmp_path):
    for name in ("a/zebra/config.json", "a/owner/inner/model_index.json", "a/notes.txt", "a/.hidden/config.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "a/saved/target").mkdir(parents=True)
    (tmp_path / "a/saved/model_index.json").write_text("{}")
    (tmp_path / "a/saved/target/config.json").write_text("{}")
    (tmp_path / "a/meta/models/7b").mkdir(parents=True)
    (tmp_path / "a/meta/models/7b/params.json").write_text("{}")
    (tmp_path / "elsewhere/linked").mkdir(parents=True)
    (tmp_path / "elsewhere/linked/config.json").write_text("{}")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/linked").symlink_to(tmp_path / "elsewhere/linked")
    return [tmp_path / "a", tmp_path / "b", tmp_path / "missing"]


def test_embedded_first_then_the_folders_of_all_roots_by_name(roots):
    assert list_models(roots) == ["embedded", "linked", "meta", "owner/inner", "saved", "zebra"]


def test_no_folder_at_all_still_offers_the_embedded_model(tmp_path):
    assert list_models([]) == list_models([tmp_path / "missing"]) == ["embedded"]


def test_every_listed_name_is_found(roots):
    found = [find_model(name, roots) for name in list_models(roots)]
    assert found == [
        "embedded",
        *(str(roots[i]) + f"/{n}" for i, n in [(1, "linked"), (0, "meta"), (0, "owner/inner"), (0, "saved")]),
    ] + [str(roots[0] / "zebra")]


def test_a_hub_id_finds_the_folder_of_its_last_part(roots):
    assert find_model("deepseek-ai/zebra", roots) == str(roots[0] / "zebra")


def test_a_missing_model_is_named_with_its_place(roots):
    with pytest.raises(ValueError, match=f"no model folder 'Janus-Pro-7B' in {roots[0]}.*put .* there"):
        find_model("deepseek-ai/Janus-Pro-7B", roots)


def test_no_way_out_of_the_model_folders(roots):
    for name in ("../elsewhere/linked", str(roots[0].parent / "elsewhere" / "linked"), "", "."):
        with pytest.raises(ValueError, match="no model folder"):
            find_model(name, roots[:1])
