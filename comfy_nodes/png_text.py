"""Text chunks of a saved PNG: the host's graph, so that dropping the file restores it, and our recipe and numbers."""

from __future__ import annotations

import json

from PIL import PngImagePlugin

from csd_pipeline.picture_file import RECIPE_KEY

TRACE_KEY = "csd_trace"


def png_text(
    prompt: dict | None, extra: dict | None, recipe: dict | None = None, trace: dict | None = None
) -> PngImagePlugin.PngInfo:
    """Chunks as the host writes them (``prompt``, then every key of ``extra``), then ``csd_recipe`` and ``csd_trace``.

    Args:
        prompt: graph in API format, or None.
        extra: the host's further chunks, the workflow among them, or None.
        recipe: what ``csd generate --from`` draws the same tokens by, or None.
        trace: numbers of the run, or None.
    """
    chunks = {"prompt": prompt, **(extra or {}), RECIPE_KEY: recipe, TRACE_KEY: trace}
    text = PngImagePlugin.PngInfo()
    for key, value in chunks.items():
        if value is not None:
            text.add_text(key, json.dumps(value))
    return text
