"""Where a pipeline comes from and goes to: a saved folder, a stock checkpoint, a hub id, or the embedded model."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import torch
import transformers
from diffusers import DiffusionPipeline

from . import components
from .checkpoint import SUPPORTED_MODELS, check_folder, check_tokenizer
from .checks import nearest
from .presets import build_parts, read_preset

EMBEDDED = "embedded"
MODELS = Path(__file__).parent / "models"
PARTS = ("drafter", "relaxation", "alignment_filter")
HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "local_files_only", "token", "revision", "subfolder")


class PipelineLoading(DiffusionPipeline):
    """Loading and saving of the pipeline."""

    @classmethod
    def from_pretrained(cls, source, **kwargs):
        """Load from a folder written by ``save_pretrained``, a stock transformers checkpoint, a hub id or "embedded".

        Takes the arguments of ``DiffusionPipeline.from_pretrained``; ``dtype`` and ``torch_dtype`` both work. Weights
        load in float32 unless a dtype is given ("auto": as stored).

        Raises:
            ValueError: folder missing, a file, shard or key of the checkpoint missing or broken, unsupported model.
        """
        source = resolve(source)
        dtype = one_dtype(kwargs.pop("dtype", None), kwargs.pop("torch_dtype", None))
        check_local(Path(source))
        hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
        try:
            cls.load_config(source, **hub)
        except OSError:  # no model_index.json: a stock checkpoint
            return cls.from_transformers(source, dtype=dtype, **kwargs)
        if dtype != "auto":
            kwargs[_pipeline_dtype_argument()] = dtype
        elif "target" not in kwargs:
            subfolder = {"subfolder": "target"} if (Path(source) / "target").is_dir() else {}
            kwargs["target"] = load_target(source, dtype, **hub, **subfolder)
        return super().from_pretrained(source, **kwargs)

    @classmethod
    def from_transformers(cls, source, *, dtype=None, **kwargs):
        """Build a pipeline around a stock transformers checkpoint; decoding is exact unless parts are given."""
        hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
        own = {name: kwargs.pop(name) for name in list(kwargs) if name in inspect.signature(cls.__init__).parameters}
        own = build_parts(read_preset("exact")) | own
        if "tokenizer" not in own:
            own["tokenizer"] = transformers.AutoTokenizer.from_pretrained(source, **hub)
        if "target" not in own:
            own["target"] = load_target(source, torch.float32 if dtype is None else dtype, **kwargs)
        return cls(**own)

    @classmethod
    def _dict_from_json_file(cls, json_file, **kwargs):
        config = super()._dict_from_json_file(json_file, **kwargs)
        if isinstance(config.get("_class_name"), (list, tuple)):
            config["_class_name"] = cls.__name__  # our own class never runs code from the folder
        return config

    @classmethod
    def load_config(cls, *args, **kwargs):
        result = super().load_config(*args, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        for name in PARTS:  # the full module name is resolved without looking at the one-line file in the folder
            entry = config.get(name)
            if isinstance(entry, (list, tuple)) and entry[0] == "csd_pipeline":
                config[name] = [components.__name__, entry[1]]
        return result

    def save_pretrained(self, save_directory, *args, remote_code: bool = True, push_to_hub: bool = False, **kwargs) -> None:
        """Save all components.

        Args:
            save_directory: folder to write.
            remote_code: write the one-line files that let ``DiffusionPipeline.from_pretrained(folder,
                trust_remote_code=True)`` load the folder without importing this package; with False the folder loads
                without a trust flag after ``import csd_pipeline``.
            push_to_hub: upload the finished folder (``repo_id``, ``private``, ``token`` as in diffusers).
        """
        hub = {name: kwargs.pop(name) for name in ("repo_id", "private", "token") if name in kwargs}
        super().save_pretrained(save_directory, *args, **kwargs)
        _write_index(Path(save_directory), self, remote_code)
        if push_to_hub:
            from huggingface_hub import create_repo, upload_folder

            private, token = hub.get("private"), hub.get("token")
            repo = create_repo(hub.get("repo_id", Path(save_directory).name), exist_ok=True, private=private, token=token)
            upload_folder(repo_id=repo.repo_id, folder_path=save_directory, token=token)


def resolve(source: str | Path) -> str:
    """Path of the embedded model, or ``source`` itself.

    Raises:
        ValueError: looks like a local folder but is none.
    """
    source = str(source)
    if Path(source).is_dir():
        return source
    if source == EMBEDDED:
        return str(MODELS / EMBEDDED)
    if source.startswith((".", "/", "~", "\\")) or source.count("/") != 1:
        raise ValueError(
            f"no folder {source!r}{nearest(source, [EMBEDDED])}; give a saved pipeline folder, "
            f"a transformers checkpoint folder, a hub id like 'owner/name', or {EMBEDDED!r}"
        )
    return source


def check_local(folder: Path) -> None:
    """Check the files of a local pipeline or checkpoint folder; hub ids are left to the download.

    Raises:
        IncompleteCheckpoint: naming the missing or broken file.
    """
    if folder.is_dir():
        check_folder(folder / "target" if (folder / "target").is_dir() else folder)
        check_tokenizer(folder / "tokenizer" if (folder / "tokenizer").is_dir() else folder)


def one_dtype(dtype, torch_dtype):
    """The dtype asked for under either of its names; float32 when none is given.

    Raises:
        ValueError: both given and different.
    """
    if dtype is not None and torch_dtype is not None and dtype != torch_dtype:
        raise ValueError(f"got dtype={dtype} and torch_dtype={torch_dtype}; give one of them")
    dtype = torch_dtype if dtype is None else dtype
    return torch.float32 if dtype is None else dtype


def load_target(source: str, dtype, **kwargs):
    """A target model from a transformers checkpoint.

    Raises:
        ValueError: not a supported kind of model.
    """
    hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
    config = transformers.AutoConfig.from_pretrained(source, **hub)
    if config.model_type not in SUPPORTED_MODELS:
        raise ValueError(f"{source} is a model of type {config.model_type!r}; supported: {', '.join(SUPPORTED_MODELS)}")
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    return getattr(transformers, config.architectures[0]).from_pretrained(source, **{name: dtype}, **kwargs)


def _pipeline_dtype_argument() -> str:
    source = inspect.getsource(DiffusionPipeline.from_pretrained)
    return "dtype" if 'kwargs.pop("dtype"' in source else "torch_dtype"


def _write_index(folder: Path, pipeline, remote_code: bool) -> None:
    """Rewrite ``model_index.json`` of a saved folder.

    With ``remote_code`` the class is named as ``[file, class]`` and every part of ours gets a one-line file in its own
    subfolder, which is how diffusers finds classes it does not know; the installed package stays the only real code.
    """
    index = folder / pipeline.config_name
    config = json.loads(index.read_text(encoding="utf-8"))
    config.pop("_name_or_path", None)
    if remote_code:
        config["_class_name"] = ["pipeline", type(pipeline).__name__]
        files = {"pipeline.py": type(pipeline)}
        for name in ("target", *PARTS):
            part = getattr(pipeline, name)
            if part is not None and config[name][0] == "csd_pipeline":
                files[f"{name}/csd_pipeline.py"] = type(part)
        for file, cls in files.items():
            (folder / file).write_text(f"from csd_pipeline import {cls.__name__}  # noqa: F401\n", encoding="utf-8")
    index.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
