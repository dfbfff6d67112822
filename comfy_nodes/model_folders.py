"""Which target models the loader offers, and where they lie. Knows folders only, no ComfyUI."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

EMBEDDED = "embedded"
FOLDER = "csd"  # of ComfyUI's models folder, and key of extra_model_paths.yaml
_MARKS = ("model_index.json", "config.json")
_META = "models/*/params.json"  # Chameleon as Meta published it
_DEPTH = 2  # models/csd/NAME and models/csd/OWNER/NAME


def list_models(roots: Iterable[str | Path]) -> list[str]:
    """``"embedded"``, then the model folders below ``roots``, sorted; a root that is missing counts as empty."""
    names = {name for root in roots for name in _below(Path(root), _DEPTH)}
    return [EMBEDDED, *sorted(names)]


def find_model(name: str, roots: Iterable[str | Path]) -> str:
    """Path of a listed model, or ``"embedded"``.

    A hub id like ``owner/Janus-Pro-1B`` also finds a folder ``Janus-Pro-1B``.

    Raises:
        ValueError: no such folder; says where to put it.
    """
    if name == EMBEDDED:
        return EMBEDDED
    roots = [Path(root) for root in roots]
    last = name.rstrip("/").rsplit("/", 1)[-1]
    for wanted in dict.fromkeys((name, last)):
        for root in roots:
            if _inside(wanted) and _is_model(root / wanted):
                return str(root / wanted)
    first = roots[0] if roots else Path("models") / FOLDER
    raise ValueError(
        f"no model folder {last!r} in {', '.join(map(str, roots)) or first}; put one there "
        f"(deepseek-community/Janus-Pro-1B, about 4 GB, for one), or choose {EMBEDDED!r}"
    )


def _below(root: Path, depth: int) -> list[str]:
    """Names, relative to ``root``, of the model folders at most ``depth`` below it."""
    if depth == 0 or not root.is_dir():
        return []
    names = []
    for folder in root.iterdir():
        if folder.name.startswith(".") or not folder.is_dir():
            continue
        inner = [] if _is_model(folder) else [f"{folder.name}/{name}" for name in _below(folder, depth - 1)]
        names += [folder.name] if _is_model(folder) else inner
    return names


def _inside(name: str) -> bool:
    return not Path(name).anchor and ".." not in Path(name).parts


def _is_model(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in _MARKS) or any(folder.glob(_META))
