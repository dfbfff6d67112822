"""Checkpoint folders for the servers of the tests."""

from pathlib import Path
from shutil import copytree

from server import REPOSITORY

EMBEDDED = REPOSITORY / "csd_pipeline" / "models" / "embedded"


def lay_out_models(base: Path) -> None:
    """Below ``base/models/csd``: the folder one template asks for, with a small Janus in the published layout in it."""
    copytree(EMBEDDED, base / "models" / "csd" / "Janus-Pro-7B")
