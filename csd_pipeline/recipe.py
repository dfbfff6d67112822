"""Everything needed to draw the same tokens again, as plain JSON."""

from __future__ import annotations

from pathlib import Path

from . import __version__
from .checks import construct, require_choice
from .names import SEEDS

_NUMBER = (int, float)
_REQUIRED = {
    "model": (str, "a name"),
    "prompt": (str, "a text"),
    "seed": (int, "an integer in 0 .. 2**64 - 1"),
    "drafter": (dict, "an object with a _class_name"),
    "relaxation": (dict, "an object with a _class_name"),
}
_OPTIONAL = {  # null or left out: what a call without it does
    "negative_prompt": (str, "a text"),
    "dtype": (str, "the name of a torch dtype"),
    "guidance_scale": (_NUMBER, "a number"),
    "temperature": (_NUMBER, "a number"),
    "top_k": (int, "an integer"),
    "top_p": (_NUMBER, "a number"),
    "width": (int, "a number of pixels"),
    "height": (int, "a number of pixels"),
    "alignment_filter": (dict, "an object with a _class_name"),
    "versions": (dict, "an object"),
    "tokens_sha256": (str, "a text"),
}


def check_recipe(recipe: dict, place: str = "the recipe") -> None:
    """Refuse a recipe that can't be drawn again. Needs neither torch nor a model.

    Ranges of numbers, names of classes and their knobs are checked by those who take them.

    Args:
        recipe: one of those :func:`make_recipes` wrote, read back from JSON.
        place: where it was found, for the message.

    Raises:
        ValueError: not an object, or an entry missing or of the wrong kind; the message names it.
    """
    if not isinstance(recipe, dict):
        raise ValueError(f"{place} must be a JSON object, got {recipe!r}")
    lacking = [name for name in _REQUIRED if recipe.get(name) is None]
    if lacking:
        raise ValueError(f"{place} does not say {', '.join(lacking)}; it can't be drawn again")
    for name, (kinds, wanted) in (_REQUIRED | _OPTIONAL).items():
        value = recipe.get(name)
        wrong = value is not None and (not isinstance(value, kinds) or isinstance(value, bool))
        if wrong or (name == "seed" and not 0 <= value < SEEDS):
            raise ValueError(f"{place} says {name} {value!r}; it must be {wanted}")


def describe(part) -> dict | None:
    """Class name and options of a part."""
    if part is None:
        return None
    return {"_class_name": type(part).__name__} | {k: v for k, v in part.config.items() if not k.startswith("_")}


def rebuild_parts(recipe: dict) -> dict:
    """``{"drafter", "relaxation", "alignment_filter"}`` as objects, from what :func:`describe` wrote into a recipe.

    Raises:
        ValueError: an entry that describes no part, a part or option this version does not know, or a value outside
            its range.
    """
    from .alignment import build_filter
    from .drafters import DRAFTERS
    from .relaxation import RELAXATIONS

    wanted = recipe.get("alignment_filter")
    return {
        "drafter": _rebuild("drafter", DRAFTERS, recipe),
        "relaxation": _rebuild("relaxation", RELAXATIONS, recipe),
        "alignment_filter": build_filter(wanted) if wanted is not None else None,
    }


def _rebuild(kind: str, registry: dict, recipe: dict):
    part = recipe.get(kind)
    if not isinstance(part, dict):
        raise ValueError(f"{kind} in the recipe must be an object with a _class_name, got {part!r}")
    classes = {cls.__name__: cls for cls in registry.values()}
    require_choice(f"{kind} in the recipe", part.get("_class_name", ""), classes)
    knobs = {name: value for name, value in part.items() if not name.startswith("_")}
    return construct(classes[part["_class_name"]], knobs)


def make_recipes(
    pipeline,
    prompts: list[str] | None,
    negative: list[str] | None,
    seeds: list[int],
    warp,
    parts: dict,
    size: tuple[int, int],
) -> list[dict]:
    """One recipe per image.

    Args:
        prompts, negative: one text per image, or None when ids were given.
        parts: the drafter, relaxation and alignment filter of the call.
        size: (height, width) in pixels.
    """
    shared = {
        "model": _model_name(pipeline.target),
        "dtype": str(pipeline.target.dtype).removeprefix("torch."),
        "guidance_scale": warp.guidance_scale,
        "temperature": warp.temperature,
        "top_k": warp.top_k,
        "top_p": warp.top_p,
        "width": size[1],
        "height": size[0],
        **{name: describe(part) for name, part in parts.items()},
        "versions": _versions(),
    }
    return [
        {
            "prompt": prompts[i] if prompts else None,
            "negative_prompt": negative[i] if negative else None,
            "seed": seed,
            **shared,
        }
        for i, seed in enumerate(seeds)
    ]


def _versions() -> dict:
    import diffusers  # here, so that a recipe can be checked without waiting for them
    import torch
    import transformers

    libraries = {"torch": torch, "transformers": transformers, "diffusers": diffusers}
    return {"csd_pipeline": __version__} | {name: library.__version__ for name, library in libraries.items()}


def _model_name(target) -> str:
    """Folder name or hub id; never a whole local path."""
    name = str(getattr(target, "name_or_path", "") or type(target).__name__)
    path = Path(name)
    if path.is_dir():
        return path.parent.name if path.name == "target" else path.name
    return name
