"""Is a checkpoint whole? Answered from file headers, before any weight is read or any device touched."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import torch

SUPPORTED_MODELS = {"janus": "JanusForConditionalGeneration"}  # model_type: class in transformers
OWN_MODELS = ("ToyTarget",)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_INDEXES = ("*.safetensors.index*.json", "*.bin.index*.json")
_SINGLE_FILES = ("model*.safetensors", "diffusion_pytorch_model*.safetensors", "pytorch_model*.bin")


class IncompleteCheckpoint(ValueError):
    """A file, shard or key of a checkpoint is missing or broken."""


def read_json(file: Path) -> dict:
    """The content of a JSON file. Raises IncompleteCheckpoint naming the file if it is no JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise IncompleteCheckpoint(f"{file} is no valid JSON ({error}); download it again") from error
    if not isinstance(content, dict):
        raise IncompleteCheckpoint(f"{file} holds a {type(content).__name__}, not a JSON object; download it again")
    return content


def check_folder(folder: Path) -> None:
    """Check the weights folder of a target: config, shards named by the index, shard lengths.

    Raises:
        IncompleteCheckpoint: naming the file.
    """
    if not (folder / "config.json").is_file():
        raise IncompleteCheckpoint(f"{folder} has no config.json; it belongs beside the weights of the target model")
    config = read_json(folder / "config.json")
    if config.get("_class_name") not in OWN_MODELS:
        check_model_type(config.get("model_type"), folder)
    for shard in shards(folder):
        _check_shard(shard)


def check_model_type(model_type: str | None, source: Path | str) -> None:
    """Raise IncompleteCheckpoint unless this package has an adapter for the ``model_type`` of a config.json."""
    if model_type == "multi_modality":
        raise IncompleteCheckpoint(
            f"{source} is in the original deepseek-ai layout (model_type 'multi_modality'); "
            "use the transformers conversion of the same model (deepseek-community/Janus-Pro-...)"
        )
    if model_type not in SUPPORTED_MODELS:
        raise IncompleteCheckpoint(
            f"{source} holds a model of type {model_type!r}; supported types: {', '.join(SUPPORTED_MODELS)}"
        )


def check_tokenizer(folder: Path) -> None:
    """Raise IncompleteCheckpoint unless ``folder`` holds a tokenizer whose JSON files are whole."""
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise IncompleteCheckpoint(f"{folder} has no tokenizer; one of {', '.join(_TOKENIZER_FILES)} belongs there")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            read_json(folder / name)


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


def check_model(model: torch.nn.Module, folder: Path) -> None:
    """Every tensor of a transformers model, loaded or on the meta device, must be stored in ``folder``, in its shape.

    Shapes are compared only on the meta device: a loaded model may have been changed since.

    Raises:
        IncompleteCheckpoint: with the number of missing or misshapen tensors and the first names.
    """
    stored, wanted = stored_shapes(folder), model.state_dict()
    if not any(key in stored for key in wanted):
        return  # stored under another naming scheme, which transformers maps itself
    missing = [key for key in wanted if key not in stored and not _tied_to_stored(model, key, stored)]
    if missing:
        raise IncompleteCheckpoint(
            f"{folder}: {len(missing)} of {len(wanted)} tensors of {type(model).__name__} are missing, "
            f"first: {', '.join(missing[:4])}; download the checkpoint again"
        )
    if next(iter(wanted.values())).device.type != "meta" or getattr(model.config, "quantization_config", None):
        return  # packed weights have shapes of their own
    wrong = [key for key, tensor in wanted.items() if stored.get(key, tensor.shape) != tensor.shape]
    if wrong:
        got, expected = list(stored[wrong[0]]), list(wanted[wrong[0]].shape)
        raise IncompleteCheckpoint(
            f"{folder}: {len(wrong)} tensors do not have the shape config.json asks for, first: {wrong[0]} is {got} "
            f"instead of {expected}; the weights belong to another config.json"
        )


def check_loaded(model: torch.nn.Module) -> None:
    """Refuse a transformers model that was filled from an incomplete folder (the rest would be random numbers).

    A model without a local folder, or whose folder has gone since, is taken as it is.
    """
    folder = Path(str(getattr(model, "name_or_path", "") or "."))
    if not folder.name or not folder.is_dir() or getattr(model, "is_quantized", False):
        return
    try:
        shards(folder)
    except IncompleteCheckpoint:
        return
    check_model(model, folder)


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor stored in a folder."""
    shapes = {}
    for shard in shards(folder):
        if shard.suffix == ".bin":
            tensors = torch.load(shard, map_location="meta", weights_only=True)
            shapes |= {key: tuple(tensor.shape) for key, tensor in tensors.items()}
        else:
            shapes |= {key: tuple(entry["shape"]) for key, entry in _header(shard)[0].items()}
    return shapes


def _tied_to_stored(model: torch.nn.Module, key: str, stored: dict) -> bool:
    """True when a parameter shares its tensor with one that is stored (transformers keeps one copy of tied weights)."""
    tied = getattr(model, "_tied_weights_keys", None) or ()
    partners = [tied[key]] if isinstance(tied, dict) and key in tied else [name for name in tied if key in tied]
    configs = (model.config, getattr(model.config, "text_config", None))
    return any(getattr(c, "tie_word_embeddings", False) for c in configs) and any(name in stored for name in partners)


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


def _check_shard(shard: Path) -> None:
    if shard.suffix == ".bin":
        return  # a zip archive, which torch checks itself
    header, start = _header(shard)
    end = start + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    size = shard.stat().st_size
    if size != end:
        raise IncompleteCheckpoint(
            f"{shard} has {size} bytes, its header promises {end}; it is truncated or damaged, download it again"
        )
