"""Files of weights: which ones a folder has, what they hold, and their tensors one after the other."""

from __future__ import annotations

import argparse
import contextlib
import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

_INDEXES = ("*.safetensors.index*.json", "*.bin.index*.json")
_SINGLE_FILES = ("model*.safetensors", "diffusion_pytorch_model*.safetensors", "pytorch_model*.bin")
_POINTER = b"version https://git-lfs"
_WRAPPERS = ("state_dict", "model", "module")  # where training code puts the weights of a .pt or .ckpt file
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_DTYPES |= {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "BOOL": torch.bool}


class IncompleteCheckpoint(ValueError):
    """A file, shard or key of a checkpoint is missing or broken."""


def read_json(file: Path) -> dict:
    """The content of a JSON file. Raises IncompleteCheckpoint naming the file if it is missing or no JSON object."""
    if not file.is_file():
        raise IncompleteCheckpoint(f"{file.parent} has no {file.name}; it belongs there")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise IncompleteCheckpoint(f"{file} is no valid JSON ({error}); download it again") from error
    if not isinstance(content, dict):
        raise IncompleteCheckpoint(f"{file} holds a {type(content).__name__}, not a JSON object; download it again")
    return content


def shards(folder: Path) -> list[Path]:
    """The weight files of a folder, as its index names them.

    Raises:
        IncompleteCheckpoint: a shard of the index is missing, or there are no weights.
    """
    for index in (file for pattern in _INDEXES for file in sorted(folder.glob(pattern))):
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise IncompleteCheckpoint(
                f"{folder}: {len(missing)} of {len(names)} weight files of {index.name} missing, "
                f"first: {', '.join(missing[:3])}; download them again"
            )
        return [folder / name for name in names]
    for pattern in _SINGLE_FILES:
        found = sorted(folder.glob(pattern))
        if found:
            return found
    raise IncompleteCheckpoint(
        f"{folder} has no model.safetensors (or index of shards); put the target's weights there"
    )


def describe(file: Path) -> dict[str, Tensor]:
    """Name, shape and dtype of every tensor of a weight file, as tensors on the meta device; nothing else is read.

    Raises:
        IncompleteCheckpoint: truncated, damaged, or no weight file.
    """
    with file.open("rb") as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            raise IncompleteCheckpoint(f"{file} is a pointer of Git LFS, not the file itself; run `git lfs pull` there")
    if file.suffix != ".safetensors":
        return _torch_file(file, "meta")
    header, start = _header(file)
    end, size = start + max((entry["data_offsets"][1] for entry in header.values()), default=0), file.stat().st_size
    if size != end:
        raise IncompleteCheckpoint(
            f"{file} has {size} bytes, its header promises {end}; it is truncated or damaged, download it again"
        )
    return {
        name: torch.empty(entry["shape"], dtype=_DTYPES.get(entry["dtype"], torch.uint8), device="meta")
        for name, entry in header.items()
    }


def read(file: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a weight file one after the other; no more of the file than one tensor is held in memory."""
    if file.suffix != ".safetensors":
        yield from _torch_file(file, "cpu").items()
        return
    with safe_open(file, "pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118  it is no dict
            yield name, tensors.get_tensor(name)


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor stored in a folder."""
    return {name: tuple(tensor.shape) for file in shards(folder) for name, tensor in describe(file).items()}


def _torch_file(file: Path, device: str) -> dict[str, Tensor]:
    """Tensors of a file of ``torch.save``, weights only, mapped into memory where the file's format allows it."""
    with file.open("rb") as opened:
        mapped = opened.read(4) == b"PK\x03\x04"  # before torch 1.6 files were no zip archives
    allowed = contextlib.nullcontext()
    if hasattr(torch.serialization, "safe_globals"):  # torch >= 2.5; training scripts store their arguments
        allowed = torch.serialization.safe_globals([argparse.Namespace])
    try:
        with allowed:
            content = torch.load(file, map_location=device, weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise IncompleteCheckpoint(
            f"{file} holds more than tensors, or is no weight file; only weights are read ({_first_line(error)})"
        ) from error
    except (RuntimeError, EOFError, OSError) as error:
        raise IncompleteCheckpoint(
            f"{file} is truncated or damaged, download it again ({_first_line(error)})"
        ) from error
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise IncompleteCheckpoint(f"{file} holds a {type(content).__name__}, not named tensors; give a weight file")
    return {name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def _header(shard: Path) -> tuple[dict, int]:
    """Tensor entries of a safetensors file, and where the tensors start."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise IncompleteCheckpoint(f"{shard} is truncated ({len(prefix)} bytes); download it again")
        length = struct.unpack("<Q", prefix)[0]
        if length > size - 8:
            raise IncompleteCheckpoint(
                f"{shard} is truncated inside its header, or no safetensors file; download it again"
            )
        try:
            header = json.loads(file.read(length))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise IncompleteCheckpoint(f"{shard} is no safetensors file; download it again") from error
    header.pop("__metadata__", None)
    return header, 8 + length
