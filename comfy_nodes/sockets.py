"""What flows between the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from comfy_api.latest import io

TargetSocket = io.Custom("CSD_TARGET")
DrafterSocket = io.Custom("CSD_DRAFTER")
RelaxationSocket = io.Custom("CSD_RELAXATION")
FilterSocket = io.Custom("CSD_FILTER")
PromptSocket = io.Custom("CSD_PROMPT")
TokensSocket = io.Custom("CSD_TOKENS")
TraceSocket = io.Custom("CSD_TRACE")


@dataclass(frozen=True)
class Target:
    """A loaded target: the pipeline that holds it, and the patcher through which ComfyUI moves it."""

    pipeline: object
    patcher: object


@dataclass(frozen=True)
class Prompt:
    """Text, and what guidance moves away from; empty is the model's own."""

    positive: str
    negative: str


@dataclass(frozen=True)
class Tokens:
    """Token ids [B, N] int64 on the CPU, the target whose decoder makes pixels of them, their (height, width)."""

    target: Target
    ids: torch.Tensor
    size: tuple[int, int]


@dataclass(frozen=True)
class TraceBatch:
    """One trace and one recipe per image."""

    traces: list
    recipes: list[dict]
