"""IMAGE tensors and Pillow pictures."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image


def to_pictures(images: torch.Tensor) -> list[Image.Image]:
    """Pillow pictures of an IMAGE [B, H, W, 3] in 0..1."""
    pixels = (images.clamp(0, 1) * 255).round().byte().cpu().numpy()
    return [Image.fromarray(picture[..., :3]) for picture in pixels]


def to_images(pictures: list[Image.Image]) -> torch.Tensor:
    """IMAGE [B, H, W, 3] float32 in 0..1 of Pillow pictures of one size."""
    return torch.from_numpy(np.stack([np.asarray(picture.convert("RGB")) for picture in pictures])).float() / 255
