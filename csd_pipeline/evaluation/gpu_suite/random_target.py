"""A target of any shape with random weights, made on its device: speed does not depend on their values."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch

from csd_pipeline.decoding import Warp
from csd_pipeline.targets import PromptBatch, TargetAdapter, adapter_for

from .shapes import Shape

_SEED, _SPREAD = 0, 0.02  # of the weights
_PROMPT = 32  # tokens
_PAD = 0


@dataclass
class RandomTarget:
    """A target, one prompt of 32 random tokens with its guidance row, and the sampling settings of the family."""

    shape: Shape
    adapter: TargetAdapter
    prompt: PromptBatch
    warp: Warp

    @property
    def model(self):
        return self.adapter.model

    @property
    def device(self) -> torch.device:
        return self.prompt.ids.device

    @property
    def tokens(self) -> int:
        """N, tokens of an image."""
        return self.adapter.grid.tokens

    def open(self, window: int):
        """A session with room for a whole image."""
        return self.adapter.open(self.prompt, min(window, self.tokens))


@torch.no_grad()
def random_target(shape: Shape, device: torch.device | str, dtype: torch.dtype) -> RandomTarget:
    """Build it; the same weights in every process on the same kind of device."""
    from transformers import JanusForConditionalGeneration

    device = torch.device(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(_SEED)
        with _default_dtype(dtype), device:
            model = JanusForConditionalGeneration(shape.config()).eval()
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, _SPREAD)
            ids = torch.randint(1, shape.words, (1, _PROMPT))
    adapter, everything = adapter_for(model), torch.ones_like(ids)
    prompt = PromptBatch(ids, everything, torch.full_like(ids, _PAD), everything)
    warp = Warp(adapter.default_guidance_scale, adapter.default_temperature)
    return RandomTarget(shape, adapter, prompt, warp)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
