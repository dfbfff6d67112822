"""Everything needed to draw the same tokens again, as plain JSON."""

from __future__ import annotations

from pathlib import Path

import diffusers
import torch
import transformers

from . import __version__


def describe(part) -> dict | None:
    """Class name and options of a part."""
    if part is None:
        return None
    return {"_class_name": type(part).__name__} | {k: v for k, v in part.config.items() if not k.startswith("_")}


def make_recipes(pipeline, prompts: list[str] | None, negative: list[str] | None, seeds: list[int], warp, parts: dict) -> list[dict]:
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
