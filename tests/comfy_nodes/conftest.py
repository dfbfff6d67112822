"""The node pack lies at the root of a clone and is not installed with the library."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in (".", "tests/targets", "tests/layouts")]  # with their random models


@pytest.fixture(scope="session")
def embedded():
    """The embedded pipeline without a progress bar."""
    from csd_pipeline import CSDAutoregressivePipeline

    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="session")
def drawn(embedded):
    """A relaxed run of two images with maps."""
    return embedded("red apple on white", num_images_per_prompt=2, seed=3, preset="fast", record_maps=True)
