"""`csd info`: what a model is and needs, from its config and file headers; no weight is read."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click

from csd_pipeline.names import PARTS

from .errors import quiet_libraries
from .jobs import parse_size
from .parts import knob_text

_JSON_ONLY = ("bytes",)


@click.command()
@click.argument("model", default="embedded")
@click.option("--dtype", help="Number format of the weights, for the memory; float32 and bfloat16 if not given.")
@click.option("--batch", type=click.IntRange(1), default=4, show_default=True, help="Pictures at once, for the memory.")
@click.option("--window", type=click.IntRange(1), default=32, show_default=True, help="Window, for the memory.")
@click.option("--size", metavar="WxH", help="Pixels, for the memory. Default: the model's usual size.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(model: str, dtype: str | None, batch: int, window: int, size: str | None, as_json: bool) -> None:
    """Describe MODEL (embedded, a folder, a file, or a hub id): sizes, grid, tokens, default knobs, memory."""
    facts = describe_model(model, batch, window, dtype, parse_size(size))
    card = facts.pop("card")
    if as_json:
        click.echo(json.dumps(facts | {"card": card}, indent=2))
        return
    facts = {name: value for name, value in facts.items() if name not in _JSON_ONLY}
    column = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{click.style(name.ljust(column), bold=True)}  {value}")
    if card:
        click.echo(f"\n{card}")


def describe_model(
    model: str,
    batch: int,
    window: int,
    dtype: str | None = None,
    size: tuple[int, int] | None = None,
) -> dict:
    """The facts about a model, in the order they are shown.

    ``card`` holds the first lines of its model card, ``bytes`` the memory estimate by number format.

    Args:
        model: as in ``from_pretrained``.
        batch, window, size: what the memory is estimated for; ``size`` is (height, width), None the usual one.
        dtype: of the weights; float32 and bfloat16 if not given.

    Raises:
        ValueError: no such model, a broken checkpoint, an unsupported model, no such dtype, a size it can not draw.
    """
    import torch

    from csd_pipeline import CSDAutoregressivePipeline
    from csd_pipeline.layouts import assemble, open_checkpoint
    from csd_pipeline.presets import CALL_KNOBS, build_parts, read_preset
    from csd_pipeline.recipe import describe
    from csd_pipeline.sampling_defaults import warp_of
    from csd_pipeline.sources import check_local, one_dtype, resolve
    from csd_pipeline.targets import adapter_for

    from .info_memory import as_json, estimates, formats_of, memory_line, stored_tensors

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
    adapter = adapter_for(target, size)
    (height, width), grid = adapter.image_size, adapter.grid
    stored = stored_tensors(_place(folder, "target"), checkpoint)
    parameters = sum(p.numel() for p in target.parameters())
    warp = warp_of(pipeline, adapter, dict.fromkeys(CALL_KNOBS), None)
    parts = {name: knob_text(describe(getattr(pipeline, name))) for name in PARTS}
    shape = {"layers": layers} if (layers := _layers(target)) else {}
    memory = estimates(adapter, stored, dtypes, batch, window, warp)
    return {
        "model": model,
        "family": f"{adapter.family} ({type(target).__name__})",
        **({"layout": checkpoint.layout} if checkpoint else {}),
        **({"lacks": checkpoint.lacks} if checkpoint and checkpoint.lacks else {}),
        "picture": f"{width} x {height} pixels",
        "sizes": ", ".join(f"{width}x{height}" for height, width in adapter.sizes) + " (width x height)",
        "tokens": f"{grid.tokens} per picture ({grid.rows} x {grid.columns}), {adapter.vocabulary} codes",
        "parameters": f"{parameters / 1e6:,.1f} M",
        "stored as": ", ".join(formats_of(stored))
        or str(getattr(target.config, "dtype", None) or "unknown").removeprefix("torch."),
        "sampling": ", ".join(f"{name} {value}" for name, value in vars(warp).items()),
        **parts,
        "where": source if folder.is_dir() else "on the hub",
        "components": _components(folder),
        **shape,
        "memory": memory_line(memory, batch, window),
        "bytes": as_json(memory),
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


def _layers(model) -> str:
    """Of the decoder; "" where it has none."""
    if hasattr(model.config, "get_text_config"):
        config = model.config.get_text_config()
        layers, width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    elif hasattr(model.config, "num_layers"):
        layers, width, heads = model.config.num_layers, model.config.dim, model.config.num_heads
    else:
        return ""
    return f"{layers} of width {width}, {heads} heads"


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
