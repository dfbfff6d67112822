"""A published checkpoint, and writing and reading its files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


@dataclass
class Published:
    """A checkpoint on disk and the model it was made from.

    Args:
        source: what is given to ``csd convert``.
        model: the target the files were written from.
        tokenizer: its tokenizer; None where the files are the only definition of it.
        prompt: one the tokenizer knows.
        extra: arguments of ``Extra``.
        weights: the file of the decoder's weights.
        key: a stored name in it.
        texts: files without which there is no tokenizer.
    """

    source: Path
    model: torch.nn.Module
    tokenizer: object
    prompt: str
    weights: Path
    key: str
    texts: list[Path] = field(default_factory=list)
    extra: dict = field(default_factory=dict)


def tensors_of(model, prefix: str = "") -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v.clone() for k, v in model.state_dict().items() if k.startswith(prefix)}


def write_json(file: Path, content: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def read_weights(file: Path) -> dict:
    if file.suffix == ".safetensors":
        return {name: tensor.clone() for name, tensor in load_file(file).items()}  # off the file, to rewrite it
    content = torch.load(file, weights_only=False)
    return next((content[key] for key in ("model", "state_dict") if key in content), content)


def write_weights(file: Path, tensors: dict) -> None:
    if file.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, {"format": "pt"})
    elif file.name.endswith(".bin") or "consolidated" in file.name:
        torch.save(tensors, file)
    else:
        torch.save({"state_dict" if file.suffix == ".ckpt" else "model": tensors}, file)


def sharded(folder: Path, tensors: dict, suffix: str) -> list[Path]:
    """Two weight files and their index."""
    stem, names = {"safetensors": "model", "bin": "pytorch_model"}[suffix], sorted(tensors)
    files = [f"{stem}-0000{n}-of-00002.{suffix}" for n in (1, 2)]
    folder.mkdir(parents=True, exist_ok=True)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    for file, half in zip(files, halves, strict=True):
        write_weights(folder / file, {name: tensors[name] for name in half})
    weight_map = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    write_json(folder / f"{stem}.{suffix}.index.json", {"metadata": {}, "weight_map": weight_map})
    return [folder / file for file in files]
