"""What ``from_pretrained`` is given: a folder, a hub id or the embedded model; and dtypes by any of their names."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from .checkpoint import SUPPORTED_MODELS, check_folder, check_model, check_tokenizer, check_variant, target_class
from .checks import nearest
from .layouts import Extra, OpenCheckpoint, open_checkpoint
from .names import EMBEDDED
from .quantization import config_of_target
from .weight_files import IncompleteCheckpoint, read_json

MODELS = Path(__file__).parent / "models"
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "local_files_only", "token", "revision", "subfolder")
_FILES = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*.tiktoken", "*.jinja"]  # of a checkpoint on the hub
_TRANSFORMERS_ALONE = ("janus", "emu3")  # loaded from the hub without looking into the files first


def resolve(source: str | Path) -> str:
    """Path of the embedded model, or ``source`` itself (a folder, a file in a published layout, or a hub id).

    Raises:
        ValueError: looks like a local folder but is none.
    """
    if not isinstance(source, (str, Path)) or not str(source):
        raise ValueError(f"give a folder, a file, a hub id like 'owner/name', or {EMBEDDED!r}, got {source!r}")
    folder, source = Path(source).expanduser(), str(source)
    if source == EMBEDDED:  # a folder of that name is reached as ./embedded
        return str(MODELS / EMBEDDED)
    if folder.exists():
        return str(folder)
    if source.startswith((".", "/", "~", "\\")) or source.count("/") != 1:
        raise ValueError(
            f"no folder {source!r}{nearest(source, [EMBEDDED])}; give a saved pipeline folder, "
            f"a transformers checkpoint folder, a hub id like 'owner/name', or {EMBEDDED!r}"
        )
    return source


def check_local(folder: Path, class_name: str, given: dict) -> None:
    """Check the files of a local pipeline or checkpoint folder; hub ids are left to the download.

    Args:
        folder: the folder, or a hub id (nothing to check).
        class_name: name of the pipeline class that will load it.
        given: components the caller passes in; they need no files.

    Raises:
        IncompleteCheckpoint: naming the missing or broken file, or another pipeline's folder.
    """
    if not folder.exists() or ("target" in given and folder.is_file()):
        return
    checkpoint = open_checkpoint(folder, Extra()) if "target" not in given else None
    if checkpoint is not None:
        check_whole(checkpoint)
        return
    if not any(folder.iterdir()):
        raise IncompleteCheckpoint(f"{folder} is empty; it needs a saved pipeline or a transformers checkpoint")
    index = read_json(folder / "model_index.json") if (folder / "model_index.json").is_file() else {}
    saved_class = index.get("_class_name", class_name)
    saved_class = saved_class[-1] if isinstance(saved_class, list) else saved_class
    if saved_class != class_name and "target" not in index:
        raise IncompleteCheckpoint(f"{folder} holds a {saved_class}, not a {class_name}; load it with its own class")
    if "target" not in given:
        check_folder(_place(folder, "target"))
        check_variant(_place(folder, "target"), given.get("variant"))
    if "tokenizer" not in given and index.get("tokenizer", ["transformers"])[0] is not None:
        check_tokenizer(_place(folder, "tokenizer"))


def check_whole(checkpoint: OpenCheckpoint) -> None:
    """Check a checkpoint in a published layout against the target it describes; no weight is read.

    Raises:
        IncompleteCheckpoint: naming what is missing, unknown or of the wrong shape.
    """
    from .layouts import assemble

    assemble.check(checkpoint, assemble.skeleton(checkpoint))


def fetch(source: str, hub: dict) -> str:
    """``source``, or where it lies after the download if it is a hub id in a layout transformers can not read alone."""
    if Path(source).exists():
        return source
    config, _ = transformers.PretrainedConfig.get_config_dict(source, **hub)
    if config.get("model_type") in _TRANSFORMERS_ALONE or "model_type" not in config:
        return source
    import huggingface_hub

    where = {name: value for name, value in hub.items() if name not in ("subfolder", "proxies")}
    patterns = [f"{hub['subfolder']}/{name}" if hub.get("subfolder") else name for name in _FILES]
    return huggingface_hub.snapshot_download(source, allow_patterns=patterns, **where)


def load_target(source: str, dtype, **kwargs):
    """A target model from a transformers checkpoint, or a saved target of this package.

    Raises:
        ValueError: not a supported kind of model, or tensors missing, unknown or of the wrong shape (local folders).
    """
    hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
    folder = Path(source) / hub.get("subfolder", "")
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
    else:
        config, _ = transformers.PretrainedConfig.get_config_dict(source, **hub)
    model_class = target_class(config, source)
    check_tensors(folder)
    if (device_map := kwargs.pop("device_map", None)) is not None:
        kwargs["device_map"] = checked_device_map(device_map)
    if (packed := config_of_target(kwargs.pop("quantization_config", None), "_class_name" in config)) is not None:
        kwargs["quantization_config"] = packed
    if "_class_name" in config:
        return model_class.from_pretrained(source, **({} if dtype == "auto" else {"torch_dtype": dtype}), **kwargs)
    return model_class.from_pretrained(source, dtype=dtype, **kwargs)


def check_tensors(folder: Path) -> None:
    """Compare the tensors a local folder holds with those its config.json asks for, before any is read.

    Raises:
        IncompleteCheckpoint: with the number of missing, unknown or misshapen tensors and the first names.
    """
    if not (folder / "config.json").is_file():
        return
    config = read_json(folder / "config.json")
    if config.get("_class_name") != "ToyTarget" and (
        "_class_name" in config or config.get("model_type") in SUPPORTED_MODELS
    ):
        check_model(empty_target(folder), folder)


def empty_target(folder: str | Path, **hub) -> torch.nn.Module:
    """The target of a folder or hub id on the meta device: its shapes, none of its weights.

    Raises:
        IncompleteCheckpoint: not a supported kind of model.
    """
    path = Path(folder, hub.get("subfolder", "")) / "config.json"
    config = read_json(path) if path.is_file() else transformers.PretrainedConfig.get_config_dict(folder, **hub)[0]
    model_class = target_class(config, folder)
    if config.get("_class_name") == "ToyTarget":
        return model_class.from_pretrained(folder, **hub)  # a table of a few numbers
    if "_class_name" in config:
        with torch.device("meta"):
            return model_class.from_config(model_class.load_config(folder, **hub))
    settings = model_class.config_class.from_pretrained(folder, **hub)
    with torch.device("meta"):
        return model_class(settings)


def checked_device_map(device_map):
    """``device_map`` itself. Raises ValueError unless it is a device, the name of a strategy, or a dict of modules."""
    strategy = isinstance(device_map, str) and device_map in DEVICE_MAPS
    if strategy or (isinstance(device_map, dict) and device_map):
        return device_map
    try:
        return {"": torch.device(device_map)}
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(
            f"device_map must be one of {', '.join(DEVICE_MAPS)}, a device like 'cuda:0', or a dict from module names "
            f"to devices, got {device_map!r}"
        ) from None


def one_dtype(dtype, torch_dtype):
    """The dtype asked for under either of its names; float32 when none is given.

    Takes a ``torch.dtype``, its name ("bfloat16"), "auto" (as stored), or a dict of these per component.

    Raises:
        ValueError: both given and different, or not a floating-point dtype.
    """
    dtype, torch_dtype = _checked_dtype(dtype), _checked_dtype(torch_dtype)
    if dtype is not None and torch_dtype is not None and dtype != torch_dtype:
        raise ValueError(f"got dtype={dtype} and torch_dtype={torch_dtype}; give one of them")
    dtype = torch_dtype if dtype is None else dtype
    return torch.float32 if dtype is None else dtype


def target_dtype(dtype):
    """The target's entry of a dtype that may be a dict per component, as diffusers reads it."""
    return dtype.get("target", dtype.get("default", torch.float32)) if isinstance(dtype, dict) else dtype


def _checked_dtype(dtype):
    if isinstance(dtype, dict):
        return {name: _checked_dtype(entry) for name, entry in dtype.items()}
    if dtype is None or dtype == "auto":
        return dtype
    named = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise ValueError(
            f"dtype must be a floating-point torch dtype, its name like 'bfloat16', or 'auto', got {dtype!r}"
        )
    return named


def _place(folder: Path, component: str) -> Path:
    """Subfolder of a component; in a flat checkpoint folder everything lies at the root."""
    return folder / component if (folder / component).is_dir() else folder
