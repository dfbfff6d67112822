"""Workflows made for the ComfyUI-Janus-Pro pack open with our nodes."""

from __future__ import annotations

import logging

from comfy_api.latest import ComfyAPI, io

LOADER = {
    "new_node_id": "CSDLoadTarget",
    "old_node_id": "JanusModelLoader",
    "old_widget_ids": ["model_name"],
    "input_mapping": [{"new_id": "model", "old_id": "model_name"}, {"new_id": "dtype", "set_value": "auto"}],
    "output_mapping": [{"new_idx": 0, "old_idx": 0}],
}
# its top_p never reached the sampling, so plain sampling is what those workflows did
GENERATION = {
    "new_node_id": "CSDQuickGenerate",
    "old_node_id": "JanusImageGeneration",
    "old_widget_ids": [
        "prompt",
        "seed",
        "control_after_generate",
        "batch_size",
        "cfg_weight",
        "temperature",
        "top_p",
    ],
    "input_mapping": [
        {"new_id": "target", "old_id": "model"},
        {"new_id": "prompt", "old_id": "prompt"},
        {"new_id": "seed", "old_id": "seed"},
        {"new_id": "images", "old_id": "batch_size"},
        {"new_id": "guidance", "old_id": "cfg_weight"},
        {"new_id": "temperature", "old_id": "temperature"},
        {"new_id": "negative", "set_value": ""},
        {"new_id": "preset", "set_value": "exact"},
        # servers rewire the loader's output through the old input name, which must still exist by then
        {"new_id": "model", "set_value": [0, 0]},
    ],
    "output_mapping": [{"new_idx": 0, "old_idx": 0}],
}
NOT_KEPT = (
    "Workflows of ComfyUI-Janus-Pro open with CSD nodes. Not kept: the numbers behind a seed (other pictures) and "
    "top_p (it had no effect there). The model folder goes to models/csd."
)


async def register_replacements() -> None:
    """Tell the server which of our nodes stand in for the old ones; the log says so where a server can't."""
    replacements = getattr(ComfyAPI(), "node_replacement", None)
    if replacements is None:
        logging.warning(
            "CSD nodes: this ComfyUI can not replace nodes, workflows of ComfyUI-Janus-Pro stay red; update it."
        )
        return
    for mapping in (LOADER, GENERATION):
        await replacements.register(io.NodeReplace(**mapping))
    logging.info("CSD nodes: %s", NOT_KEPT)
