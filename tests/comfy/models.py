"""Checkpoint folders for the servers of the tests."""

from pathlib import Path

from server import REPOSITORY

EMBEDDED = REPOSITORY / "csd_pipeline" / "models" / "embedded"


def lay_out_models(base: Path) -> None:
    """The folder one template asks for, with a small Janus in it: a link, where only extra_model_paths.yaml leads."""
    folder = base / "elsewhere" / "autoregressive"
    folder.mkdir(parents=True)
    (folder / "Janus-Pro-7B").symlink_to(EMBEDDED)
    paths = f"elsewhere:\n  base_path: {folder.parent}\n  csd: {folder.name}\n"
    (base / "extra_model_paths.yaml").write_text(paths)
