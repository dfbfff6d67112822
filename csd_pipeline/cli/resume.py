"""Which pictures of a job an earlier run has already saved."""

from __future__ import annotations

import json
from pathlib import Path

from csd_pipeline.picture_file import read_recipe

from .files import Destination, numbered
from .jobs import Image


def saved_picture(destination: Destination, image: Image, recipe: dict, scale: int) -> tuple[Path, str] | None:
    """File and token digest of a finished picture with this very recipe, or None.

    Args:
        recipe: what the picture would be drawn by now, library versions included, without the digest of its tokens.
        scale: enlargement of the saved picture.
    """
    from PIL import Image as Pictures

    wanted = json.loads(json.dumps(recipe))
    size = (recipe["width"] * scale, recipe["height"] * scale)
    for path in numbered(destination.folder / destination.picture_name(image.prompt, image.seed)):
        if not path.is_file():
            return None
        try:
            found = read_recipe(str(path))
            with Pictures.open(path) as picture:
                fits = picture.size == size
        except (ValueError, OSError):
            continue  # somebody else's picture under this name
        digest = found.pop("tokens_sha256", None)
        if fits and digest is not None and found == wanted:
            return path, digest
    raise AssertionError("unreachable: there is always a next number")
