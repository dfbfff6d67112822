"""What the pack's and the library's sources never hold: each line here broke another pack for its users."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [file for folder in ("csd_pipeline", "comfy_nodes") for file in sorted((ROOT / folder).rglob("*.py"))]
HOST = {"aiohttp", "comfy", "comfy_api", "folder_paths", "server", "csd_pipeline", "comfy_nodes"}
OF_TRANSFORMERS = {"huggingface_hub", "tokenizers", "yaml"}  # which always brings them
ASKED_FOR_BY_NAME = {"torchao"}  # only in a sentence of its own when it is missing


def imports(file: Path) -> list[tuple[str, list[str]]]:
    """(module, imported names) of every absolute import of a file."""
    found = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append((node.module, [alias.name for alias in node.names]))
    return found


def declared() -> set[str]:
    """Top-level modules of everything pyproject.toml names, extras included, and what that always brings."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    names = {name.lower() for name in re.findall(r'"([A-Za-z][\w-]*)(?:\[[\w,]+\])?>=', project)}
    modules = {"PIL" if name == "pillow" else name.replace("-", "_") for name in names}
    return modules | OF_TRANSFORMERS | ASKED_FOR_BY_NAME


def test_nothing_is_imported_that_the_project_does_not_declare():
    modules = {module.split(".")[0] for file in SOURCES for module, _ in imports(file)}
    assert "torch" in modules
    assert modules - set(sys.stdlib_module_names) - declared() - HOST == set()


def test_no_attention_class_of_transformers_is_imported():
    """Those come and go between its releases."""
    names = [name for file in SOURCES for module, names in imports(file) for name in (module, *names)]
    assert any(name.startswith("transformers") for name in names)
    assert not [name for name in names if re.search(r"Attention|flash_attn", name)]


def test_no_source_goes_to_cuda_by_itself():
    pattern = re.compile(r"""\.cuda\(|(?:\bto|\bdevice)\(\s*["']cuda|[^=!]=\s*["']cuda""")
    assert pattern.search('x.to("cuda")') and pattern.search("f(device='cuda:0')")
    assert not [str(file) for file in SOURCES if pattern.search(file.read_text("utf-8"))]
    assert not [str(file) for file in (ROOT / "comfy_nodes").glob("*.py") if "cuda" in file.read_text("utf-8")]


def test_no_dependency_comes_from_a_repository_or_an_address():
    for file in ("pyproject.toml", "requirements.txt"):
        table = (ROOT / file).read_text("utf-8")
        assert not re.search(r"""^\s*["']?[\w-]+\s*@|git\+|\.whl|["']\S+(?:==|<)\S*["']""", table, re.M), file
