"""`csd convert`: a checkpoint in any published layout as a diffusers folder."""

from __future__ import annotations

from pathlib import Path

import click

from .errors import note, quiet_libraries, status

_PLACE = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("source")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--vq", type=_PLACE, help="Picture decoder: vqgan.ckpt, vq_*.pt or a folder.")
@click.option("--text-encoder", type=_PLACE, help="Folder of flan-t5-xl (LlamaGen from text).")
@click.option("--tokenizer", type=_PLACE, help="Folder of the tokenizer, where SOURCE has none.")
@click.option("--dtype", default="auto", show_default=True, help="Number format of the weights; auto: as stored.")
@click.option("--max-shard-size", default="5GB", show_default=True, help="Largest weight file.")
def convert(
    source: str,
    out: Path,
    vq: Path | None,
    text_encoder: Path | None,
    tokenizer: Path | None,
    dtype: str,
    max_shard_size: str,
) -> None:
    """Write the checkpoint SOURCE (a folder, a file or a hub id) to the folder OUT, which diffusers loads offline."""
    from csd_pipeline.conversion import convert as write
    from csd_pipeline.layouts import Extra

    quiet_libraries()
    with status(f"converting {source}"):
        pipeline = write(source, out, Extra(vq, text_encoder, tokenizer), dtype, max_shard_size)
    note(f"{out}: {type(pipeline.target).__name__} and its tokenizer" if pipeline.tokenizer else f"{out}: the target")
    click.echo(out)
