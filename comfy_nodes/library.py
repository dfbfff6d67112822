"""The library the nodes stand on is the one of their own clone, whatever is installed beside it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "csd_pipeline"


def use_this_clone() -> None:
    """Import ``csd_pipeline`` from the folder beside this package.

    Only this one name is added: the clone itself never enters ``sys.path``, where its other folders could shadow those
    of other packs. A library that is already imported stays.
    """
    if "csd_pipeline" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "csd_pipeline", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["csd_pipeline"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["csd_pipeline"]
        raise
