"""Is a checkpoint whole? Answered from file headers, before any weight is read or any device touched."""

from __future__ import annotations

import json
import struct
from pathlib import Path

SUPPORTED_MODELS = ("janus",)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


class IncompleteCheckpoint(ValueError):
    """A file, shard or key of a checkpoint is missing or broken."""


def check_folder(folder: Path) -> None:
    """Check the weights folder of a target: config, shards named by the index, shard lengths.

    Raises:
        IncompleteCheckpoint: naming the file.
    """
    if not (folder / "config.json").is_file():
        raise IncompleteCheckpoint(f"{folder} has no config.json; it belongs beside the weights of the target model")
    model_type = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    if model_type == "multi_modality":
        raise IncompleteCheckpoint(
            f"{folder} is in the original deepseek-ai layout (model_type 'multi_modality'); "
            "use the transformers conversion of the same model (deepseek-community/Janus-Pro-...)"
        )
    if model_type not in SUPPORTED_MODELS:
        raise IncompleteCheckpoint(
            f"{folder} holds a model of type {model_type!r}; supported types: {', '.join(SUPPORTED_MODELS)}"
        )
    for shard in shards(folder):
        _check_shard(shard)


def check_tokenizer(folder: Path) -> None:
    """Raise IncompleteCheckpoint unless ``folder`` holds a tokenizer."""
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise IncompleteCheckpoint(f"{folder} has no tokenizer; one of {', '.join(_TOKENIZER_FILES)} belongs there")


def shards(folder: Path) -> list[Path]:
    """The safetensors files of a folder, as its index names them.

    Raises:
        IncompleteCheckpoint: a shard of the index is missing, or there are no safetensors weights.
    """
    for index in sorted(folder.glob("*.safetensors.index*.json")):
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise IncompleteCheckpoint(
                f"{folder}: {len(missing)} of {len(names)} weight files of {index.name} missing: {', '.join(missing[:3])}"
            )
        return [folder / name for name in names]
    found = sorted(folder.glob("model*.safetensors")) + sorted(folder.glob("diffusion_pytorch_model*.safetensors"))
    if not found:
        raise IncompleteCheckpoint(f"{folder} has no model.safetensors (or index of shards); put the target's weights there")
    return found


def stored_keys(folder: Path) -> set[str]:
    """Names of all tensors stored in a folder."""
    return {key for shard in shards(folder) for key in _header(shard) if key != "__metadata__"}


def check_keys(model, folder: Path) -> None:
    """Every parameter and buffer of a loaded transformers model must come from the files of ``folder``.

    Raises:
        IncompleteCheckpoint: with the number of missing tensors and the first names.
    """
    stored = stored_keys(folder)
    if not any(key in stored for key in model.state_dict()):
        return  # stored under another naming scheme, which transformers maps itself
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    missing = [key for key in model.state_dict() if key not in stored and key not in tied]
    if missing:
        raise IncompleteCheckpoint(
            f"{folder}: {len(missing)} of {len(model.state_dict())} tensors of {type(model).__name__} are missing, "
            f"first: {', '.join(missing[:4])}; download the checkpoint again"
        )


def _header(shard: Path) -> dict:
    with shard.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise IncompleteCheckpoint(f"{shard} is truncated ({len(prefix)} bytes); download it again")
        length = struct.unpack("<Q", prefix)[0]
        if length > shard.stat().st_size - 8:
            raise IncompleteCheckpoint(f"{shard} is truncated inside its header, or no safetensors file; download it again")
        return json.loads(file.read(length)) | {"__metadata__": {"header_length": length}}


def _check_shard(shard: Path) -> None:
    header = _header(shard)
    start = 8 + header.pop("__metadata__")["header_length"]
    end = start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    size = shard.stat().st_size
    if size != end:
        raise IncompleteCheckpoint(f"{shard} has {size} bytes, its header promises {end}; it is truncated or damaged, download it again")
