"""Loader of target models."""

from __future__ import annotations

from pathlib import Path

from comfy_api.latest import io

from . import memory
from .model_folders import EMBEDDED, find_model, list_models
from .sockets import TargetSocket


class LoadTarget(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDLoadTarget",
            display_name="Load target",
            category="CSD/loaders",
            description="Loads the autoregressive model that draws. The embedded one needs no download.",
            search_aliases=[
                *("Janus", "Janus-Pro", "JanusModelLoader", "Chameleon", "Anole", "Lumina-mGPT", "Emu3", "LlamaGen"),
                *("autoregressive", "checkpoint", "CSD"),
            ],
            inputs=[
                io.Combo.Input(
                    "model",
                    options=list_models(memory.roots()),
                    default=EMBEDDED,
                    tooltip="'embedded' comes with the pack and draws small pictures. Others are folders "
                    "in models/csd that hold Janus, Janus-Pro, Chameleon, Anole, Lumina-mGPT, Emu3-Gen or LlamaGen; "
                    "'csd convert' makes one of several files.",
                ),
                io.Combo.Input(
                    "dtype",
                    options=list(memory.DTYPES),
                    default="auto",
                    tooltip="Number format of the weights. auto: bf16 where the device computes in it, else fp16; "
                    "fp32 on a processor. Exact equality of pictures between methods needs fp32.",
                ),
            ],
            outputs=[TargetSocket.Output(display_name="target", tooltip="The loaded model, for the sampler.")],
        )

    @classmethod
    def validate_inputs(cls, model: str | None = None) -> bool | str:
        if model is None:
            return True
        from csd_pipeline.sources import check_local

        try:
            folder = find_model(model, memory.roots())
            if folder != EMBEDDED:
                check_local(Path(folder), "CSDAutoregressivePipeline", {})
        except ValueError as error:
            return str(error)
        return True

    @classmethod
    def execute(cls, model: str, dtype: str) -> io.NodeOutput:
        return io.NodeOutput(memory.load(model, dtype))
