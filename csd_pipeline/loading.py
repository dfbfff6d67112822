"""Loading and saving of the pipeline: saved folder, stock transformers checkpoint, hub id, or the embedded model."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from diffusers import DiffusionPipeline

from . import components
from .layouts import OpenCheckpoint, open_checkpoint
from .names import PARTS
from .presets import CALL_KNOBS, build_parts, read_preset
from .sources import (
    EMBEDDED,
    HUB_ARGUMENTS,
    MODELS,
    check_local,
    check_tensors,
    fetch,
    load_target,
    one_dtype,
    resolve,
)
from .sources import target_dtype as _target_dtype
from .tokenizer_files import load_tokenizer, make_portable, portable_class
from .weight_files import IncompleteCheckpoint

__all__ = ["EMBEDDED", "MODELS", "PARTS", "PipelineLoading", "check_local", "load_target", "one_dtype", "resolve"]

# how the target is placed and packed: its own loader's arguments
_PLACEMENT = ("device_map", "max_memory", "offload_folder", "offload_buffers", "quantization_config")


class PipelineLoading(DiffusionPipeline):
    """Loading and saving of the pipeline."""

    @classmethod
    def from_pretrained(cls, source, **kwargs):
        """Load from a folder written by ``save_pretrained``, a published checkpoint, a hub id or "embedded".

        Takes the arguments of ``DiffusionPipeline.from_pretrained``; ``dtype`` and ``torch_dtype`` both work. Weights
        load in float32 unless a dtype is given ("auto": as stored). Components given by name replace those of the
        folder. A published checkpoint decodes exactly (preset "exact") unless parts are given; those that need a
        second file (a picture decoder, a text encoder) go through ``csd convert`` first.
        ``DiffusionPipeline.from_pretrained`` never asks this class: without a dtype it keeps half precision as stored.
        ``device_map`` places or splits the target as for any transformers model: "auto", "balanced",
        "balanced_low_0", "sequential", a device, or a dict of module names. ``quantization_config`` packs its weights,
        see :func:`csd_pipeline.quantization.quantization_config`.

        Raises:
            ValueError: folder missing, a file, shard or key of the checkpoint missing or broken, unsupported model.
        """
        source = resolve(source)
        if Path(source).is_dir() and kwargs.get("subfolder"):
            inner = Path(source, kwargs.pop("subfolder"))
            if not inner.is_dir():
                raise ValueError(f"{source} has no folder {inner.name!r}; leave subfolder out, or name one it has")
            source = str(inner)
        dtype = one_dtype(kwargs.pop("dtype", None), kwargs.pop("torch_dtype", None))
        if Path(source).is_file():
            return cls.from_transformers(source, dtype=dtype, **kwargs)
        check_local(Path(source), cls.__name__, kwargs)
        hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
        try:
            config = cls.load_config(source, **hub)
        except OSError:  # no model_index.json: a stock checkpoint
            return cls.from_transformers(source, dtype=dtype, **kwargs)
        if "tokenizer" in config and config["tokenizer"][0] is None:
            kwargs.setdefault("tokenizer", None)  # saved without one
        subfolder = {"subfolder": "target"} if (Path(source) / "target").is_dir() else {}
        placement = {name: kwargs.pop(name) for name in _PLACEMENT if name in kwargs}
        if "target" not in kwargs and (dtype == "auto" or placement):
            variant = {"variant": kwargs["variant"]} if "variant" in kwargs else {}
            own = hub | subfolder | variant | placement
            kwargs["target"] = load_target(source, _target_dtype(dtype), **own)
            dtype = None
        elif dtype == "auto":
            dtype = None
        elif "target" not in kwargs:
            check_tensors(Path(source, *subfolder.values()))
        if dtype is not None:
            kwargs[_pipeline_dtype_argument()] = dtype
        return super().from_pretrained(source, **kwargs)

    @classmethod
    def from_transformers(cls, source, *, dtype=None, **kwargs):
        """Build a pipeline around a published checkpoint; decoding is exact unless parts are given.

        Raises:
            ValueError: as :meth:`from_pretrained`.
        """
        hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
        own = {name: kwargs.pop(name) for name in list(kwargs) if name in inspect.signature(cls.__init__).parameters}
        own = build_parts(read_preset("exact")) | own
        checkpoint = None
        if "target" not in own:
            source = fetch(str(source), hub)
            checkpoint = open_checkpoint(Path(source, hub.get("subfolder", "")))
        if checkpoint is not None:
            return cls(**_from_layout(checkpoint, _target_dtype(one_dtype(dtype, None)), own, set(kwargs) - set(hub)))
        if "tokenizer" not in own:
            own["tokenizer"] = load_tokenizer(source, **hub)
        if "target" not in own:
            own["target"] = load_target(source, _target_dtype(one_dtype(dtype, None)), **kwargs)
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
        for name in ("target", *PARTS):  # the full module name is resolved without looking at the one-line file there
            entry = config.get(name)
            if isinstance(entry, (list, tuple)) and entry[0] == "csd_pipeline":
                config[name] = [components.__name__, entry[1]]
        return result

    def load_preset(self, name: str) -> None:
        """Replace drafter, relaxation, filter and the sampling defaults by those of a preset.

        Sampling numbers the preset leaves open go back to the model's own.

        Raises:
            ValueError: unknown preset; the nearest name is offered.
        """
        preset = read_preset(name)
        self.register_modules(**build_parts(preset))
        self.register_to_config(**{f"default_{knob}": preset["call"].get(knob) for knob in CALL_KNOBS})

    def save_pretrained(
        self, save_directory, *args, remote_code: bool = True, push_to_hub: bool = False, **kwargs
    ) -> None:
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
            repo = create_repo(
                hub.get("repo_id", Path(save_directory).name), exist_ok=True, private=private, token=token
            )
            upload_folder(repo_id=repo.repo_id, folder_path=save_directory, token=token)


def _from_layout(checkpoint: OpenCheckpoint, dtype, own: dict, unused: set[str]) -> dict:
    """Components of a pipeline around a checkpoint in a published layout; the parts in ``own`` are kept."""
    from .layouts import assemble

    unused = unused - {"use_safetensors", "low_cpu_mem_usage", "variant", "trust_remote_code"}
    if unused:
        raise ValueError(
            f"{', '.join(sorted(unused))} can not be given for {checkpoint.layout} ({checkpoint.place}); "
            "run `csd convert` first and load what it writes"
        )
    if checkpoint.lacks:
        raise IncompleteCheckpoint(checkpoint.lacks)
    if "tokenizer" not in own:
        own = own | {"tokenizer": checkpoint.load_tokenizer()}  # first: what is missing is told before weights are read
    return own | {"target": assemble.load(checkpoint, dtype)}


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
    config["tokenizer"] = portable_class(config["tokenizer"])
    make_portable(folder / "tokenizer")
    files = {"pipeline.py": type(pipeline)}
    for name in ("target", *PARTS):
        if getattr(pipeline, name) is not None and config[name][0] == "csd_pipeline":
            files[f"{name}/csd_pipeline.py"] = type(getattr(pipeline, name))
    for file, cls in files.items():
        if remote_code:
            home = "csd_pipeline" if cls.__module__.startswith("csd_pipeline") else cls.__module__
            (folder / file).write_text(f"from {home} import {cls.__name__}  # noqa: F401\n", encoding="utf-8")
        else:
            (folder / file).unlink(missing_ok=True)  # of an earlier save into the same folder
    config["_class_name"] = ["pipeline", type(pipeline).__name__] if remote_code else type(pipeline).__name__
    index.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
