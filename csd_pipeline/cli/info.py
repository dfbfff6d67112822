"""`csd info`: what a model is and needs, from its config and file headers; no weight is read."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from pathlib import Path

import click

from csd_pipeline.names import PARTS

from .errors import quiet_libraries
from .parts import knob_text

_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_PROMPT = 64  # prompt tokens assumed in the memory estimate


@click.command()
@click.argument("model", default="embedded")
@click.option("--batch", type=click.IntRange(1), default=4, show_default=True, help="Pictures at once, for the memory.")
@click.option("--window", type=click.IntRange(1), default=32, show_default=True, help="Window, for the memory.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(model: str, batch: int, window: int, as_json: bool) -> None:
    """Describe MODEL (embedded, a folder, or a hub id): size, grid, tokens, default knobs, memory."""
    facts = describe_model(model, batch, window)
    card = facts.pop("card")
    if as_json:
        click.echo(json.dumps(facts | {"card": card}, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")
    if card:
        click.echo(f"\n{card}")


def describe_model(model: str, batch: int, window: int) -> dict:
    """The facts about a model, in the order they are shown; ``card`` holds the first lines of its model card.

    Raises:
        ValueError: no such model, a broken checkpoint, an unsupported model.
    """
    import torch

    from csd_pipeline import CSDAutoregressivePipeline
    from csd_pipeline.presets import CALL_KNOBS
    from csd_pipeline.recipe import describe
    from csd_pipeline.sampling_defaults import warp_of
    from csd_pipeline.sources import check_local, resolve
    from csd_pipeline.targets import adapter_for

    quiet_libraries()
    source = resolve(model)
    folder = Path(source)
    check_local(folder, CSDAutoregressivePipeline.__name__, {})
    target = _skeleton(source)
    pipeline = CSDAutoregressivePipeline.from_pretrained(source, target=target, dtype=torch.float32)
    adapter = adapter_for(target)
    (height, width), grid = adapter.image_size, adapter.grid
    count, formats = _stored(folder)
    parameters = count or sum(p.numel() for p in target.parameters())
    warp = warp_of(pipeline, adapter, dict.fromkeys(CALL_KNOBS), None)
    parts = {name: knob_text(describe(getattr(pipeline, name))) for name in PARTS}
    return {
        "model": model,
        "family": f"{adapter.family} ({type(target).__name__})",
        "picture": f"{width} x {height} pixels",
        "tokens": f"{grid.tokens} per picture ({grid.rows} x {grid.columns}), {adapter.vocabulary} codes",
        "parameters": f"{parameters / 1e6:,.1f} M",
        "stored as": formats or str(getattr(target.config, "dtype", None) or "unknown").removeprefix("torch."),
        "sampling": ", ".join(f"{name} {value}" for name, value in vars(warp).items()),
        **parts,
        "where": source if folder.is_dir() else "on the hub",
        "components": _components(folder),
        **_text_model(target, grid.tokens, parameters, batch, 2 if warp.guided else 1, window),
        "card": _card(folder),
    }


def _skeleton(source: str):
    """The target without storage: its shapes on the meta device."""
    import torch
    import transformers

    from csd_pipeline.checkpoint import SUPPORTED_MODELS, check_model_type

    folder = _place(Path(source), "target")
    if folder.is_dir() and json.loads((folder / "config.json").read_text(encoding="utf-8")).get("_class_name"):
        from csd_pipeline.targets.toy import ToyTarget

        return ToyTarget.from_pretrained(folder)  # a table of a few numbers
    where = {} if folder.is_dir() else _hub_subfolder(source)
    config = transformers.AutoConfig.from_pretrained(folder if folder.is_dir() else source, **where)
    check_model_type(config.model_type, source)
    with torch.device("meta"):
        target = getattr(transformers, SUPPORTED_MODELS[config.model_type])(config)
    with contextlib.suppress(OSError):  # no generation_config.json
        place = folder if folder.is_dir() else source
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


def _stored(folder: Path) -> tuple[int, str]:
    """Number of stored values and their formats, from the file headers; (0, "") where there are none to read."""
    from safetensors import safe_open

    from csd_pipeline.checkpoint import shards

    counts: Counter[str] = Counter()
    for shard in shards(_place(folder, "target")) if folder.is_dir() else ():
        if shard.suffix == ".safetensors":
            with safe_open(shard, "pt") as file:
                for key in file.keys():  # noqa: SIM118  it is no dict
                    entry = file.get_slice(key)
                    counts[entry.get_dtype()] += math.prod(entry.get_shape())
    return sum(counts.values()), ", ".join(_NAMES.get(dtype, dtype) for dtype, _ in counts.most_common())


def _text_model(model, tokens: int, parameters: int, batch: int, rows: int, window: int) -> dict:
    """Layers, and the memory that weights and the cache of keys and values take; ``rows`` per picture."""
    if not hasattr(model.config, "get_text_config"):
        return {"memory": f"{_size(4 * parameters)} of weights in float32"}
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cached = 2 * config.num_hidden_layers * rows * batch * heads * head * (_PROMPT + tokens + window)
    formats = (("float32", 4), ("bfloat16 or float16", 2))
    memory = [f"{_size(size * parameters)} + {_size(size * cached)} in {name}" for name, size in formats]
    return {
        "layers": f"{config.num_hidden_layers} of width {config.hidden_size}, {config.num_attention_heads} heads",
        "memory": f"weights + cache for {batch} pictures at once, window {window}: {', '.join(memory)}",
    }


def _components(folder: Path) -> str:
    index = folder / "model_index.json"
    if not index.is_file():
        return "a transformers checkpoint (no parts of its own: preset exact)"
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
