"""What a call of the pipeline returns."""

from __future__ import annotations

from dataclasses import dataclass

from diffusers.utils import BaseOutput

from .decoding import Trace


@dataclass
class CSDPipelineOutput(BaseOutput):
    """Result of a call.

    Args:
        images: list of PIL images, or an array [B, H, W, 3] / tensor [B, 3, H, W] in 0..1, or token ids [B, N] int64.
        traces: one :class:`~csd_pipeline.Trace` per image.
        recipes: one dict per image with everything needed to draw the same tokens again.
        complete: False when the run was interrupted.
    """

    images: object
    traces: list[Trace]
    recipes: list[dict]
    complete: bool = True
