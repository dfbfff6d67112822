"""The files a clone needs to be a node pack."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from comfy_nodes.registry import parts
from comfy_nodes.texts import CHINESE, DOCS, ENGLISH, english, merged, pages, read

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = {
    "CSDLoadTarget",
    "CSDFilterCombine",
    "CSDPrompt",
    "CSDSampler",
    "CSDDecode",
    "CSDQuickGenerate",
    "CSDTrace",
    "CSDSaveImage",
}
BROUGHT_BY_THE_HOST = {"torch", "numpy", "pillow", "safetensors"}


def test_requirements_are_the_librarys_own_bounds_and_never_upper_ones():
    listed = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    project = (ROOT / "pyproject.toml").read_text()
    own = re.findall(r'"([\w-]+>=[\w.]+)"', re.search(r"^dependencies = \[(.*?)^\]", project, re.M | re.S).group(1))
    assert listed and all(re.fullmatch(r"[\w-]+>=[\d.]+", line) for line in listed)
    assert set(listed) == {line for line in own if line.split(">=")[0] not in BROUGHT_BY_THE_HOST}


def test_pages_and_entries_of_generated_nodes_are_as_their_parts_say():
    """After a change of a part: python -m comfy_nodes.texts"""
    stale = [str(path) for path, text in pages().items() if not path.is_file() or path.read_text("utf-8") != text]
    assert not stale
    entries = read(ENGLISH)
    assert {part.node_id: entries.get(part.node_id) for part in parts()} == {p.node_id: english(p) for p in parts()}


def test_every_node_has_a_page_in_both_languages_and_no_page_is_left_over():
    ids = WRITTEN | {part.node_id for part in parts()}
    assert {path.stem for path in DOCS.glob("*.md")} == ids
    assert {path.parent.name for path in DOCS.glob("*/zh.md")} == ids
    assert set(read(ENGLISH)) == ids and WRITTEN <= set(read(CHINESE)) <= ids


def test_chinese_entries_name_only_what_the_english_ones_have():
    def keys(entry, path=()):
        return {p for k, v in entry.items() for p in (keys(v, (*path, k)) if isinstance(v, dict) else {(*path, k)})}

    chinese, all_english = keys(read(CHINESE)), keys(read(ENGLISH))
    assert chinese <= all_english
    assert {path for path in all_english if path[0] in WRITTEN} <= chinese


def test_a_translation_keeps_what_it_does_not_have():
    assert merged({"a": "x", "b": {"c": "y", "d": "z"}}, {"b": {"c": "1"}}) == {"a": "x", "b": {"c": "1", "d": "z"}}


@pytest.mark.parametrize("file", sorted((ROOT / "locales").glob("*/*.json")), ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_locale_files_are_json_objects(file):
    assert json.loads(file.read_text("utf-8"))


def run(code: str, *path: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(p) for p in path]}\n{code}"],
        capture_output=True,
        text=True,
        cwd=path[0],
    )


AS_A_PACK = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("pack", {str(ROOT / "__init__.py")!r})
pack = importlib.util.module_from_spec(spec)
sys.modules["pack"] = pack
spec.loader.exec_module(pack)
print(sorted(name for name in vars(pack) if name in ("WEB_DIRECTORY", "comfy_entrypoint")))
"""


def test_outside_the_host_the_root_file_does_nothing(tmp_path):
    done = run(AS_A_PACK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_failed_import_shows_its_cause_and_what_mends_it(tmp_path):
    (tmp_path / "comfy_api").mkdir()
    (tmp_path / "comfy_api/__init__.py").touch()
    (tmp_path / "comfy_api/latest.py").write_text("io = ComfyExtension = None")
    (tmp_path / "folder_paths.py").write_text("raise ImportError('boom: no such library')")
    done = run(AS_A_PACK, tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert "boom: no such library" in last and sys.executable in last
    assert f'-m pip install -r "{ROOT / "requirements.txt"}"' in last


def test_the_pack_uses_the_library_of_its_own_clone_without_touching_the_path(tmp_path):
    (tmp_path / "csd_pipeline.py").write_text("raise SystemExit('the wrong library')")
    code = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("library", {str(ROOT / "comfy_nodes/library.py")!r})
library = importlib.util.module_from_spec(spec)
spec.loader.exec_module(library)
before = list(sys.path)
library.use_this_clone()
import csd_pipeline, csd_pipeline.checks
assert sys.path == before
print(csd_pipeline.__file__)
"""
    done = run(code, tmp_path)
    assert done.stdout.strip() == str(ROOT / "csd_pipeline/__init__.py"), done.stderr


def test_the_library_never_imports_the_host():
    names = re.compile(r"^\s*(?:import|from)\s+(?:comfy\w*|folder_paths|nodes|server)\b", re.M)
    assert not [str(f) for f in (ROOT / "csd_pipeline").rglob("*.py") if names.search(f.read_text("utf-8"))]


def test_the_pack_says_which_host_it_needs_and_where_its_version_is():
    project = (ROOT / "pyproject.toml").read_text()
    table = re.search(r"^\[tool\.comfy\]\n(.*?)^\[", project, re.M | re.S).group(1)
    assert re.search(r'^requires-comfyui = ">=[\d.]+"$', table, re.M)
    assert re.search(r'^PublisherId = "[\w-]+"$', table, re.M) and re.search(r'^DisplayName = ".+"$', table, re.M)
    version = re.search(r'^\[tool\.comfy\.version\]\npath = "(.+)"$', project, re.M).group(1)
    assert re.search(r'^__version__ = "\d+\.\d+\.\d+"$', (ROOT / version).read_text(), re.M)
