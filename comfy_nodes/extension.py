"""The list of nodes ComfyUI asks for."""

from __future__ import annotations

import os

import folder_paths
from comfy_api.latest import ComfyExtension, io

from . import alignment, drafters, relaxation, routes  # noqa: F401  routes are added by the import
from .decode import Decode
from .loaders import LoadTarget
from .migration import register_replacements
from .model_folders import FOLDER
from .prompt import PromptNode
from .quick import QuickGenerate
from .sampler import Sampler
from .save import SaveImage
from .trace import Trace


class Extension(ComfyExtension):
    async def on_load(self) -> None:
        folder_paths.add_model_folder_path(FOLDER, os.path.join(folder_paths.models_dir, FOLDER))
        await register_replacements()

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        parts = [*drafters.NODES, *relaxation.NODES, *alignment.NODES]
        return [LoadTarget, *parts, PromptNode, Sampler, Decode, QuickGenerate, Trace, SaveImage]


async def comfy_entrypoint() -> Extension:
    return Extension()
