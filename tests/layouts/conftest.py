import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "targets"))  # its random models are written in published layouts

from published import LAYOUTS, Published


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Published checkpoints by name of the layout, written when first asked for; not to be changed."""
    written: dict[str, Published] = {}

    def get(name: str) -> Published:
        if name not in written:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                written[name] = LAYOUTS[name](tmp_path_factory.mktemp(name) / "Published")
        return written[name]

    return get
