"""What ``from_pretrained`` is given: a folder, a hub id or the embedded model; and dtypes by any of their names."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from .checkpoint import (
    SUPPORTED_MODELS,
    IncompleteCheckpoint,
    check_folder,
    check_model,
    check_model_type,
    check_tokenizer,
    read_json,
)
from .checks import nearest
from .names import EMBEDDED

MODELS = Path(__file__).parent / "models"
HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "local_files_only", "token", "revision", "subfolder")


def resolve(source: str | Path) -> str:
    """Path of the embedded model, or ``source`` itself.

    Raises:
        ValueError: looks like a local folder but is none.
    """
    folder, source = Path(source).expanduser(), str(source)
    if source == EMBEDDED:  # a folder of that name is reached as ./embedded
        return str(MODELS / EMBEDDED)
    if folder.is_dir():
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
    if not folder.is_dir():
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
    if "tokenizer" not in given and index.get("tokenizer", ["transformers"])[0] is not None:
        check_tokenizer(_place(folder, "tokenizer"))


def load_target(source: str, dtype, **kwargs):
    """A target model from a transformers checkpoint.

    Raises:
        ValueError: not a supported kind of model, or tensors missing or of the wrong shape (local folders).
    """
    hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
    config = transformers.AutoConfig.from_pretrained(source, **hub)
    check_model_type(config.model_type, source)
    model_class = getattr(transformers, SUPPORTED_MODELS[config.model_type])
    check_tensors(Path(source) / hub.get("subfolder", ""), model_class, config)
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    return model_class.from_pretrained(source, **{name: dtype}, **kwargs)


def check_tensors(folder: Path, model_class=None, config=None) -> None:
    """Compare the tensors a local folder holds with those its config.json asks for, before any is read.

    Raises:
        IncompleteCheckpoint: with the number of missing or misshapen tensors and the first names.
    """
    if not (folder / "config.json").is_file():
        return
    if model_class is None:
        model_type = read_json(folder / "config.json").get("model_type")
        if model_type not in SUPPORTED_MODELS:
            return
        model_class, config = getattr(transformers, SUPPORTED_MODELS[model_type]), None
    config = transformers.AutoConfig.from_pretrained(folder) if config is None else config
    with torch.device("meta"):
        model = model_class(config)
    check_model(model, folder)


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
