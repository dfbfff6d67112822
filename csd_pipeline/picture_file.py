"""PNG files that carry the recipe they were drawn by."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image, PngImagePlugin, UnidentifiedImageError

RECIPE_KEY = "csd_recipe"


def picture_bytes(image: Image.Image, recipe: dict) -> bytes:
    """The picture as a PNG file whose text chunk ``csd_recipe`` holds ``recipe`` as JSON.

    The JSON is plain ASCII (other letters escaped), which every PNG reader takes.
    """
    chunk = PngImagePlugin.PngInfo()
    chunk.add_text(RECIPE_KEY, json.dumps(recipe))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=chunk)
    return buffer.getvalue()


def save_picture(image: Image.Image, path: str | Path, recipe: dict) -> None:
    """Write a PNG with its recipe."""
    Path(path).write_bytes(picture_bytes(image, recipe))


def read_recipe(path: str | Path) -> dict:
    """The recipe a picture carries.

    Raises:
        ValueError: no picture file, or one without a (readable) recipe.
        FileNotFoundError: no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no picture file {str(path)!r}")
    try:
        with Image.open(path) as image:
            image.load()  # text behind the pixels is read with them
            text = getattr(image, "text", {}).get(RECIPE_KEY)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"{path} can't be read as a picture: {error}") from error
    if text is None:
        raise ValueError(f"{path} carries no recipe; PNGs written by csd do, until another program saves them again")
    try:
        recipe = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the recipe in {path} is damaged: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(f"the recipe in {path} is damaged: it is no JSON object")
    return recipe
