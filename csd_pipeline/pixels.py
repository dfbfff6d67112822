"""Token ids to pixels."""

from __future__ import annotations

import torch
from torch import Tensor

_PIXELS_PER_SLICE = 2**20  # bounds the decoder's memory; its result does not depend on it


class NonFinitePixels(RuntimeError):
    """The image decoder returned NaN or infinite pixels."""


def decode_pixels(adapter, tokens: Tensor) -> Tensor:
    """[B, N] image codes -> [B, 3, H, W] float32 pixels in [-1, 1].

    Half-precision decoders that overflow are run again in float32.

    Raises:
        NonFinitePixels: not finite in float32 either.
    """
    return torch.cat([_decode_slice(adapter, part) for part in tokens.split(images_per_slice(adapter))])


def images_per_slice(adapter) -> int:
    """How many images become pixels at once."""
    height, width = adapter.image_size
    return max(1, _PIXELS_PER_SLICE // (height * width))


def _decode_slice(adapter, tokens: Tensor) -> Tensor:
    pixels = adapter.decode(tokens).float()
    if not torch.isfinite(pixels).all():
        with adapter.float32_decoder():
            pixels = adapter.decode(tokens).float()
    if not torch.isfinite(pixels).all():
        raise NonFinitePixels("the image decoder returned pixels that are not numbers; its weights are damaged")
    return pixels.clamp(-1, 1)
