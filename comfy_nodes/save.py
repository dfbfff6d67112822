"""Saves pictures with everything needed to draw them again."""

from __future__ import annotations

from pathlib import Path

import folder_paths
from comfy.cli_args import args
from comfy_api.latest import io, ui

from . import trace_views
from .pictures import to_pictures
from .png_text import png_text
from .sockets import TraceSocket


class SaveImage(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDSaveImage",
            display_name="Save image",
            category="CSD",
            description="Saves PNGs with the workflow, the recipe for 'csd generate --from' and the run's numbers.",
            search_aliases=["save", "png", "metadata", "CSD"],
            is_output_node=True,
            inputs=[
                io.Image.Input("images", tooltip="Pictures to save."),
                io.String.Input(
                    "filename_prefix",
                    default="CSD",
                    tooltip="Start of the file names; may name subfolders of the output folder and %date:yyyy-MM-dd%.",
                ),
                TraceSocket.Input(
                    "trace", optional=True, tooltip="Of the same run: recipe and numbers go into the files."
                ),
            ],
        )

    @classmethod
    def execute(cls, images, filename_prefix: str, trace=None) -> io.NodeOutput:
        if trace is not None:
            trace_views.check_images(trace.traces, len(images))
        height, width = images.shape[1:3]
        folder, name, number, subfolder, _ = folder_paths.get_save_image_path(
            filename_prefix, folder_paths.get_output_directory(), width, height
        )
        saved = []
        for i, picture in enumerate(to_pictures(images)):
            file = f"{name.replace('%batch_num%', str(i))}_{number + i:05}_.png"
            picture.save(Path(folder, file), pnginfo=cls._text(trace, i), compress_level=4)
            saved.append(ui.SavedResult(file, subfolder, io.FolderType.output))
        return io.NodeOutput(ui=ui.SavedImages(saved))

    @classmethod
    def _text(cls, trace, i: int):
        if args.disable_metadata:
            return None
        own = () if trace is None else (trace.recipes[i], trace.traces[i].to_dict())
        return png_text(cls.hidden.prompt, cls.hidden.extra_pnginfo, *own)
