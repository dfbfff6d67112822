"""Sheets of pictures, to look at what a model draws."""

from pathlib import Path

import torch
from PIL import Image


def save_grid(images: torch.Tensor, columns: int, path: Path) -> None:
    """Writes (n, 3, h, w) pictures in -1..1 as one PNG, row by row; n must be a multiple of `columns`."""
    if len(images) % columns:
        raise ValueError(f"{len(images)} pictures do not fill rows of {columns}")
    rows = images.unflatten(0, (-1, columns)).permute(0, 3, 1, 4, 2)
    sheet = ((rows + 1) * 127.5).round().clamp(0, 255).byte().flatten(0, 1).flatten(1, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet.numpy()).save(path, optimize=True)
