"""Checkpoint folders for the servers of the tests."""

import sys
from pathlib import Path

from server import REPOSITORY

sys.path += [str(REPOSITORY), str(REPOSITORY / "tests" / "targets")]

EMBEDDED = REPOSITORY / "csd_pipeline" / "models" / "embedded"
MANY_SIZES = "Lumina-small"  # a random model, its sizes as (width, height), the usual one first
SIZES = [(96, 96), (32, 128), (64, 128), (64, 96), (96, 64), (128, 64), (128, 32)]


def lay_out_models(base: Path) -> None:
    """Folders where only extra_model_paths.yaml leads: what one template asks for, a link to a small Janus; and a model
    of many sizes."""
    from families import lumina

    folder = base / "elsewhere" / "autoregressive"
    folder.mkdir(parents=True)
    (folder / "Janus-Pro-7B").symlink_to(EMBEDDED)
    family = lumina()
    family.model.save_pretrained(folder / MANY_SIZES)
    family.tokenizer.save_pretrained(folder / MANY_SIZES)
    paths = f"elsewhere:\n  base_path: {folder.parent}\n  csd: {folder.name}\n"
    (base / "extra_model_paths.yaml").write_text(paths)
