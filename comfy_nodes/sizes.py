"""Sizes a model of the loader's list can draw, read from its config. Knows no ComfyUI."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from csd_pipeline.layouts import assemble, open_checkpoint
from csd_pipeline.sources import check_local, empty_target, resolve
from csd_pipeline.targets import adapter_for

from .model_folders import find_model


def sizes_of(model: str, roots: list[str]) -> list[tuple[int, int]]:
    """(width, height) in pixels of what a listed model draws, its usual size first. No weight is read.

    Raises:
        ValueError: no such model in ``roots``, or its checkpoint is not whole.
    """
    folder = Path(resolve(find_model(model, roots)))
    return _sizes(folder, tuple(sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*.json"))))


@lru_cache(maxsize=64)
def _sizes(folder: Path, state: tuple) -> list[tuple[int, int]]:
    """Of the model in ``folder``; ``state`` tells its configs of other times."""
    checkpoint = open_checkpoint(folder)
    if checkpoint is not None:
        target = assemble.skeleton(checkpoint)
    else:
        check_local(folder, "CSDAutoregressivePipeline", {})
        target = empty_target(folder / "target" if (folder / "target").is_dir() else folder)
    return list(dict.fromkeys((width, height) for height, width in adapter_for(target).sizes))
