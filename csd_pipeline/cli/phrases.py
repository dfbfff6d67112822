"""`csd phrases`: a phrase library for the relaxation `phrase`, from pictures drawn here or from given tokens."""

from __future__ import annotations

from pathlib import Path

import click

from .devices import choose_device, choose_dtype, choose_threads
from .errors import note, quiet_libraries, status
from .jobs import EMBEDDED, plan_images, read_prompts


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option("--prompts", "prompt_file", metavar="FILE", help="One prompt a line; `-` reads standard input.")
@click.option("--tokens", metavar="FILE", help="Token grids instead of prompts: a .safetensors file with `tokens`.")
@click.option("--model", default=EMBEDDED, show_default=True, metavar="NAME", help="embedded, a folder, or a hub id.")
@click.option("-n", "--count", type=click.IntRange(1), default=1, show_default=True, help="Pictures per prompt.")
@click.option("--seed", type=click.IntRange(0, 2**63), default=0, show_default=True, help="Picture i uses seed + i.")
@click.option("--batch", type=click.IntRange(1), default=16, show_default=True, help="Pictures drawn at once.")
@click.option("--max-len", type=int, default=3, show_default=True, help="Longest phrase, 2 to 4.")
@click.option("--min-count", type=int, default=50, show_default=True, help="How often a phrase must occur.")
@click.option("--npmi", type=float, default=0.3, show_default=True, help="How much more than chance, -1 to 1.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--dtype", default="auto", show_default=True, help="auto, float32, float16 or bfloat16.")
@click.option("--threads", type=click.IntRange(1), help="Processor threads. Default: free cores.")
@click.option("-o", "--output", required=True, metavar="FILE", help="The library, a .safetensors file.")
def phrases(prompts, prompt_file, tokens, model, count, seed, batch, output, device, dtype, threads, **knobs) -> None:
    """Collect the runs of image codes that occur together far more often than chance, from pictures of PROMPT.

    \b
    csd phrases --prompts captions.txt -n 4 -o phrases.safetensors
    csd phrases --tokens encoded.safetensors --min-count 200 -o phrases.safetensors
    csd generate "a fox" --relaxation phrase --relax library=phrases.safetensors
    """
    path = Path(output).expanduser()
    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise ValueError(f"-o {output}: give a .safetensors file in a folder that exists")
    if bool(tokens) == bool(prompts or prompt_file) or (prompts and prompt_file):
        raise ValueError('phrases come from one source: give a "prompt", --prompts FILE, or --tokens FILE')
    with status("importing torch"):
        import torch

        from csd_pipeline import CSDAutoregressivePipeline
        from csd_pipeline.relaxation.phrase_library import PhraseLibrary
        from csd_pipeline.targets import adapter_for

    grids = _read_tokens(tokens) if tokens else None
    texts = read_prompts(prompt_file) if prompt_file else list(prompts)
    quiet_libraries()
    device = choose_device(device)[0]
    torch.set_num_threads(choose_threads(threads)[0])
    dtype = choose_dtype("float32" if dtype == "auto" and model == EMBEDDED else dtype, device)[0]
    with status(f"loading {model}"):
        pipeline = CSDAutoregressivePipeline.from_pretrained(model, dtype=getattr(torch, dtype)).to(device)
    adapter = adapter_for(pipeline.target)
    if grids is None:
        grids = _draw(pipeline, plan_images(texts, count, seed), batch)
    if grids.dim() == 2:
        if grids.shape[1] != adapter.grid.tokens:
            raise ValueError(
                f"--tokens: pictures of this model have {adapter.grid.tokens} tokens, got {grids.shape[1]}"
            )
        grids = adapter.grid.picture(grids)
    library = PhraseLibrary.collect(grids, adapter.codebook, **knobs)
    found = {length: len(ids) for length, ids in library.phrases.items()}
    if not sum(found.values()):
        raise ValueError(
            f"no phrase occurs {knobs['min_count']} times in {len(grids)} pictures; give more, or a lower --min-count"
        )
    library.save(path)
    known = ", ".join(f"{number} of {length} codes" for length, number in found.items())
    click.echo(f"{path}  {known}, from {len(grids)} pictures")


def _read_tokens(name: str):
    """``tokens`` of a .safetensors file: integers [pictures, N] or [pictures, rows, columns]."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(name)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"--tokens {name}: no readable .safetensors file ({error})") from error
    if "tokens" not in tensors or tensors["tokens"].dim() not in (2, 3):
        raise ValueError(f"--tokens {name}: needs a tensor `tokens` [pictures, N] or [pictures, rows, columns]")
    return tensors["tokens"]


def _draw(pipeline, images, batch: int):
    """[pictures, N] tokens, drawn exactly."""
    import torch

    pipeline.load_preset("exact")
    pipeline.set_progress_bar_config(disable=True)
    drawn = []
    for start in range(0, len(images), batch):
        some = images[start : start + batch]
        texts, seeds = [image.prompt for image in some], [image.seed for image in some]
        drawn.append(pipeline(texts, seed=seeds, output_type="latent").images.cpu())
        note(f"{start + len(some)} of {len(images)} pictures")
    return torch.cat(drawn)
