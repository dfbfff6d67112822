"""A clone of this repository in ComfyUI's ``custom_nodes`` is a node pack; anywhere else this file does nothing."""

import importlib.util
import sys
from pathlib import Path

if __package__ and importlib.util.find_spec("comfy_api"):
    WEB_DIRECTORY = "./comfy_nodes/web"
    try:
        from .comfy_nodes.library import use_this_clone

        use_this_clone()
        from .comfy_nodes.extension import comfy_entrypoint  # noqa: F401  ComfyUI looks it up here
    except ImportError as error:
        requirements = Path(__file__).parent / "requirements.txt"
        raise ImportError(
            f'CSD nodes: {error}. ComfyUI runs on {sys.executable}; this mends it: "{sys.executable}" -m pip install '
            f'-r "{requirements}"'
        ) from error
