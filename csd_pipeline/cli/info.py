"""`csd info`: what a model is and needs, from its config and file headers; no weight is read."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import click

from csd_pipeline.names import PARTS

from .errors import quiet_libraries
from .parts import knob_text

_PROMPT = 64  # prompt tokens assumed in the memory estimate


@click.command()
@click.argument("model", default="embedded")
@click.option("--dtype", help="Number format of the weights, for the memory; float32 and bfloat16 if not given.")
@click.option("--batch", type=click.IntRange(1), default=4, show_default=True, help="Pictures at once, for the memory.")
@click.option("--window", type=click.IntRange(1), default=32, show_default=True, help="Window, for the memory.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(model: str, dtype: str | None, batch: int, window: int, as_json: bool) -> None:
    """Describe MODEL (embedded, a folder, a file, or a hub id): sizes, grid, tokens, default knobs, memory."""
    facts = describe_model(model, batch, window, dtype)
    card = facts.pop("card")
    if as_json:
        click.echo(json.dumps(facts | {"card": card}, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")
    if card:
        click.echo(f"\n{card}")


def describe_model(model: str, batch: int, window: int, dtype: str | None = None) -> dict:
    """The facts about a model, in the order they are shown; ``card`` holds the first lines of its model card.

    Raises:
        ValueError: no such model, a broken checkpoint, an unsupported model, no such dtype.
    """
    import torch

    from csd_pipeline import CSDAutoregressivePipeline
    from csd_pipeline.layouts import assemble, open_checkpoint
    from csd_pipeline.presets import CALL_KNOBS, build_parts, read_preset
    from csd_pipeline.recipe import describe
    from csd_pipeline.sampling_defaults import warp_of
    from csd_pipeline.sources import check_local, one_dtype, resolve
    from csd_pipeline.targets import adapter_for

    quiet_libraries()
    dtypes = [torch.float32, torch.bfloat16] if dtype is None else [one_dtype(dtype, None)]
    source = resolve(model)
    folder = Path(source)
    checkpoint = open_checkpoint(folder)
    if checkpoint is None:
        check_local(folder, CSDAutoregressivePipeline.__name__, {})
        target = _skeleton(source)
        pipeline = CSDAutoregressivePipeline.from_pretrained(source, target=target, dtype=torch.float32)
    else:
        target = assemble.skeleton(checkpoint)
        pipeline = CSDAutoregressivePipeline(target, None, **build_parts(read_preset("exact")))
    adapter = adapter_for(target)
    (height, width), grid = adapter.image_size, adapter.grid
    formats = _stored(folder, checkpoint)
    parameters = sum(p.numel() for p in target.parameters())
    warp = warp_of(pipeline, adapter, dict.fromkeys(CALL_KNOBS), None)
    parts = {name: knob_text(describe(getattr(pipeline, name))) for name in PARTS}
    return {
        "model": model,
        "family": f"{adapter.family} ({type(target).__name__})",
        **({"layout": checkpoint.layout} if checkpoint else {}),
        **({"lacks": checkpoint.lacks} if checkpoint and checkpoint.lacks else {}),
        "picture": f"{width} x {height} pixels",
        "sizes": ", ".join(f"{width}x{height}" for height, width in adapter.sizes) + " (width x height)",
        "tokens": f"{grid.tokens} per picture ({grid.rows} x {grid.columns}), {adapter.vocabulary} codes",
        "parameters": f"{parameters / 1e6:,.1f} M",
        "stored as": formats or str(getattr(target.config, "dtype", None) or "unknown").removeprefix("torch."),
        "sampling": ", ".join(f"{name} {value}" for name, value in vars(warp).items()),
        **parts,
        "where": source if folder.is_dir() else "on the hub",
        "components": _components(folder),
        **_text_model(target, grid.tokens, parameters, batch, 2 if warp.guided else 1, window, dtypes),
        "card": _card(folder),
    }


def _skeleton(source: str):
    """The target without storage: its shapes on the meta device."""
    import transformers

    from csd_pipeline.sources import empty_target

    folder = _place(Path(source), "target")
    where = {} if folder.is_dir() else _hub_subfolder(source)
    place = str(folder) if folder.is_dir() else source
    target = empty_target(place, **where)
    if hasattr(target, "generation_config"):
        with contextlib.suppress(OSError):  # no generation_config.json
            target.generation_config = transformers.GenerationConfig.from_pretrained(place, **where)
    return target


def _hub_subfolder(source: str) -> dict:
    """Where the target's config lies in a hub repository: a saved pipeline keeps it in a subfolder."""
    from csd_pipeline import CSDAutoregressivePipeline

    try:
        CSDAutoregressivePipeline.load_config(source)
    except OSError:
        return {}
    return {"subfolder": "target"}


def _place(folder: Path, component: str) -> Path:
    return folder / component if (folder / component).is_dir() else folder


def _stored(place: Path, checkpoint) -> str:
    """Number formats of the stored tensors, most values first; "" where there are none to read."""
    from csd_pipeline.layouts.split_files import describe
    from csd_pipeline.weight_files import shards

    if checkpoint is not None:
        files = [file for piece in checkpoint.pieces for file in piece.files]
    else:
        files = shards(_place(place, "target")) if place.is_dir() else []
    counts: Counter[str] = Counter()
    for tensor in (tensor for file in files for tensor in describe(file).values()):
        counts[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
    return ", ".join(dtype for dtype, _ in counts.most_common())


def _text_model(model, tokens: int, parameters: int, batch: int, rows: int, window: int, dtypes: list) -> dict:
    """Layers, and the memory that weights and the cache of keys and values take; ``rows`` per picture."""
    named = [("as stored", model.dtype) if dtype == "auto" else (str(dtype)[6:], dtype) for dtype in dtypes]
    if hasattr(model.config, "get_text_config"):
        config = model.config.get_text_config()
        layers, width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
        cached_heads = getattr(config, "num_key_value_heads", None) or heads
        head = getattr(config, "head_dim", None) or width // heads
    elif hasattr(model.config, "num_layers"):
        layers, width, heads = model.config.num_layers, model.config.dim, model.config.num_heads
        cached_heads, head = heads, width // heads
    else:
        return {"memory": f"{_size(4 * parameters)} of weights in float32"}
    cached = 2 * layers * rows * batch * cached_heads * head * (_PROMPT + tokens + window)
    memory = [f"{_size(d.itemsize * parameters)} + {_size(d.itemsize * cached)} in {name}" for name, d in named]
    return {
        "layers": f"{layers} of width {width}, {heads} heads",
        "memory": f"weights + cache for {batch} pictures at once, window {window}: {', '.join(memory)}",
    }


def _components(folder: Path) -> str:
    index = folder / "model_index.json"
    if not index.is_file():
        return "a published checkpoint (no parts of its own: preset exact)"
    entries = json.loads(index.read_text(encoding="utf-8"))
    parts = {name: entry for name, entry in entries.items() if isinstance(entry, list) and not name.startswith("_")}
    return ", ".join(f"{name} {entry[-1]}" for name, entry in parts.items() if entry[-1])


def _card(folder: Path, paragraphs: int = 6) -> str:
    """The opening of README.md: headings and text, without its front matter, pictures and tables."""
    path = folder / "README.md"
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    if text.startswith("---"):
        text = text.split("---", 2)[-1]
    blocks = [block.strip() for block in text.split("\n\n")]
    return "\n\n".join([block for block in blocks if block and block[:2] not in ("![", "| ")][:paragraphs])


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
