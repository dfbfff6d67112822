"""Everything needed to draw the same tokens again, as plain JSON."""

from __future__ import annotations

from pathlib import Path

import diffusers
import torch
import transformers

from . import __version__
from .checks import construct, require_choice


def describe(part) -> dict | None:
    """Class name and options of a part."""
    if part is None:
        return None
    return {"_class_name": type(part).__name__} | {k: v for k, v in part.config.items() if not k.startswith("_")}


def rebuild_parts(recipe: dict) -> dict:
    """``{"drafter", "relaxation", "alignment_filter"}`` as objects, from what :func:`describe` wrote into a recipe.

    Raises:
        ValueError: a part or option this version does not know, or a value outside its range.
    """
    from .alignment import build_filter
    from .drafters import DRAFTERS
    from .relaxation import RELAXATIONS

    wanted = recipe.get("alignment_filter")
    return {
        "drafter": _rebuild("drafter", DRAFTERS, recipe),
        "relaxation": _rebuild("relaxation", RELAXATIONS, recipe),
        "alignment_filter": build_filter(wanted) if wanted else None,
    }


def _rebuild(kind: str, registry: dict, recipe: dict):
    part = recipe.get(kind) or {}
    classes = {cls.__name__: cls for cls in registry.values()}
    require_choice(f"{kind} in the recipe", part.get("_class_name", ""), classes)
    knobs = {name: value for name, value in part.items() if not name.startswith("_")}
    return construct(classes[part["_class_name"]], knobs)


def make_recipes(
    pipeline, prompts: list[str] | None, negative: list[str] | None, seeds: list[int], warp, parts: dict
) -> list[dict]:
    """One recipe per image.

    Args:
        prompts, negative: one text per image, or None when ids were given.
        parts: the drafter, relaxation and alignment filter of the call.
    """
    shared = {
        "model": _model_name(pipeline.target),
        "dtype": str(pipeline.target.dtype).removeprefix("torch."),
        "guidance_scale": warp.guidance_scale,
        "temperature": warp.temperature,
        "top_k": warp.top_k,
        "top_p": warp.top_p,
        **{name: describe(part) for name, part in parts.items()},
        "versions": {
            "csd_pipeline": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "diffusers": diffusers.__version__,
        },
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


def _model_name(target) -> str:
    """Folder name or hub id; never a whole local path."""
    name = str(getattr(target, "name_or_path", "") or type(target).__name__)
    path = Path(name)
    if path.is_dir():
        return path.parent.name if path.name == "target" else path.name
    return name
