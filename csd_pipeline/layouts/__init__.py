"""Published layouts other than transformers' and diffusers' own: recognised by their files, one per file here."""

from __future__ import annotations

import importlib
from pathlib import Path

from csd_pipeline.checkpoint import GGUF
from csd_pipeline.weight_files import IncompleteCheckpoint, read_json

from .base import Extra, Layout, OpenCheckpoint

_LAYOUTS = {
    "janus_original": "JanusOriginal",
    "chameleon_folder": "ChameleonFolder",
    "chameleon_official": "ChameleonOfficial",
    "emu3_original": "Emu3Original",
    "llamagen": "LlamaGen",
}


def recognise(place: Path) -> Layout | None:
    """The layout of a folder or file; None for saved pipelines and folders transformers reads alone.

    Raises:
        IncompleteCheckpoint: a config.json that is no JSON.
    """
    if (place / "model_index.json").is_file():
        return None
    config = read_json(place / "config.json") if (place / "config.json").is_file() else {}
    for module, name in _LAYOUTS.items():
        layout = getattr(importlib.import_module(f".{module}", __name__), name)()
        if layout.recognises(place, config):
            return layout
    return None


def open_checkpoint(place: Path, extra: Extra | None = None) -> OpenCheckpoint | None:
    """Describe a folder or file in one of the published layouts; None as :func:`recognise`.

    Raises:
        IncompleteCheckpoint: a file missing or broken.
    """
    if not place.exists():
        return None
    layout = recognise(place)
    if layout is None and place.is_file():
        if place.suffix == ".gguf":
            raise IncompleteCheckpoint(f"{place} can not draw: {GGUF}")
        raise IncompleteCheckpoint(f"{place} is no weight file; give a checkpoint folder, or a .pt file of LlamaGen")
    return None if layout is None else layout.open(place, extra or Extra())


__all__ = ["Extra", "Layout", "OpenCheckpoint", "open_checkpoint", "recognise"]
