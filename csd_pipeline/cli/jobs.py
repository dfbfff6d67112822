"""What a `csd generate` call has to draw. No heavy imports: bad input is refused before they are paid for."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from csd_pipeline.names import EMBEDDED, SEEDS

from .files import Destination
from .parts import PartOptions


@dataclass(frozen=True)
class Image:
    """One picture to draw, number ``index`` of its job."""

    prompt: str
    seed: int
    index: int = 0


@dataclass(frozen=True)
class Sampling:
    """Sampling knobs; None leaves the choice to the preset, then the model."""

    negative_prompt: str | None = None
    guidance_scale: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None

    def numbers(self) -> dict:
        """The knobs that were given, the negative prompt apart."""
        names = ("guidance_scale", "temperature", "top_k", "top_p")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass
class Job:
    """Pictures to draw, by which model and method.

    Args:
        size: (height, width) in pixels, None for the model's usual one.
        recipe: of the picture whose tokens are drawn again, or None.
        seed_is_random: nobody chose the seed, so it has to be told.
        resume: leave out pictures an earlier run has saved.
        has_manifest: write a list of the pictures when they are done.
    """

    model: str
    images: list[Image]
    sampling: Sampling
    parts: PartOptions
    size: tuple[int, int] | None = None
    recipe: dict | None = None
    seed_is_random: bool = False
    resume: bool = False
    has_manifest: bool = False
    destination: Destination | None = None
    json_file: Path | None = None


def plan_images(prompts: list[str], count: int, seed: int) -> list[Image]:
    """``count`` images of each prompt, in order; image i of the list has seed ``seed + i`` (modulo 2**64)."""
    texts = [prompt for prompt in prompts for _ in range(count)]
    return [Image(text, (seed + i) % SEEDS, i) for i, text in enumerate(texts)]


def parse_size(text: str | None) -> tuple[int, int] | None:
    """(height, width) from "WxH". Raises ValueError for anything else; what a model can draw it knows itself."""
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})[xX×]([1-9]\d{0,4})", text.strip())
    if match is None:
        raise ValueError(
            f"--size {text}: give width x height in pixels, like 768x512; `csd info MODEL` lists the sizes"
        )
    width, height = map(int, match.groups())
    return height, width


def read_prompts(name: str) -> list[str]:
    """The lines of a UTF-8 file (``-``: of standard input) that are not blank.

    Raises:
        ValueError: none, or no UTF-8 text.
        FileNotFoundError: no such file.
    """
    if name != "-" and not Path(name).is_file():
        raise FileNotFoundError(f"--prompts: no file {name!r}")
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"--prompts {name}: no UTF-8 text ({error.reason} at byte {error.start})") from error
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise ValueError(f"--prompts {name}: the file holds no prompt; write one a line")
    return prompts


def job_from_picture(picture: str, model: str | None) -> Job:
    """The job of drawing a picture's tokens again.

    Raises:
        ValueError: no recipe in the picture, a recipe that lacks something, or a model that can't be located.
    """
    from csd_pipeline.picture_file import read_recipe
    from csd_pipeline.recipe import check_recipe

    recipe = read_recipe(picture)
    check_recipe(recipe, f"the recipe in {picture}")
    names = ("negative_prompt", "guidance_scale", "temperature", "top_k", "top_p")
    sampling = Sampling(**{name: recipe.get(name) for name in names})
    image = Image(recipe["prompt"], recipe["seed"])
    model = model or _locate(recipe["model"], picture)
    size = (recipe["height"], recipe["width"]) if recipe.get("width") and recipe.get("height") else None
    return Job(model, [image], sampling, PartOptions(), size, recipe)


def _locate(name: str, picture: str) -> str:
    """A recipe names a model by hub id or by its last folder only."""
    if name == EMBEDDED or "/" in name or Path(name).is_dir():
        return name
    raise ValueError(f"{picture} was drawn by the model in a folder {name!r}; say where that is with --model")
