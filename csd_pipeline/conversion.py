"""Any published checkpoint as a diffusers folder: safetensors in shards, tokenizer, parts that decode exactly."""

from __future__ import annotations

from pathlib import Path

from .layouts import Extra, assemble, open_checkpoint
from .pipeline import CSDAutoregressivePipeline
from .presets import build_parts, read_preset
from .sources import fetch, one_dtype, resolve
from .weight_files import IncompleteCheckpoint


def convert(
    source: str | Path, out: str | Path, extra: Extra | None = None, dtype="auto", max_shard_size: str = "5GB"
) -> CSDAutoregressivePipeline:
    """Write the pipeline of a published checkpoint; returns it, loaded on the CPU.

    One copy of the weights is held in memory. Weight files other than safetensors are read weights-only.

    Args:
        source: folder, file or hub id.
        out: folder to write; must not exist, or be empty.
        extra: files the checkpoint lacks.
        dtype: of the weights written; "auto" as stored.
        max_shard_size: of a weight file.

    Raises:
        ValueError: ``out`` is not empty, no such source, or (as IncompleteCheckpoint) a file or tensor missing.
    """
    source, out, extra, dtype = resolve(source), Path(out), extra or Extra(), one_dtype(dtype, None)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; give a folder that does not exist yet")
    blocked = next((parent for parent in out.parents if parent.is_file()), None)
    if blocked is not None:
        raise ValueError(f"{out} can not be made: {blocked} is a file")
    place = Path(fetch(source, {}))
    checkpoint = open_checkpoint(place, extra)
    if checkpoint is None:
        given = {name: getattr(extra, name) for name in ("vq", "text_encoder") if getattr(extra, name) is not None}
        if given:
            raise ValueError(f"{source} needs no {' or '.join(given)}: it is whole; leave that out")
        pipeline = CSDAutoregressivePipeline.from_pretrained(str(place) if place.exists() else source, dtype=dtype)
    else:
        if checkpoint.lacks:
            raise IncompleteCheckpoint(checkpoint.lacks)
        tokenizer = checkpoint.load_tokenizer()
        target = assemble.load(checkpoint, dtype)
        pipeline = CSDAutoregressivePipeline(target=target, tokenizer=tokenizer, **build_parts(read_preset("exact")))
    pipeline.save_pretrained(out, max_shard_size=max_shard_size)
    return pipeline
