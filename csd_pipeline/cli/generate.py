"""`csd generate`: prompts in, pictures with their recipes out."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from csd_pipeline.checks import require_choice
from csd_pipeline.names import EMBEDDED, SEEDS
from csd_pipeline.presets import preset_names

from .collector import collector_paused
from .errors import INTERRUPTED, note, status
from .files import Destination
from .jobs import Job, Sampling, job_from_picture, parse_size, plan_images, read_prompts
from .parts import PartOptions, part_options

# what --from takes from the picture and therefore may not be given beside it
_IN_RECIPE = ("prompts", "prompt_file", "count", "seed", "negative_prompt", "guidance_scale", "temperature", "top_k",
              "top_p", "size", *PartOptions.__dataclass_fields__)  # fmt: skip


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option("--prompts", "prompt_file", metavar="FILE", help="One prompt a line; `-` reads standard input.")
@click.option("--from", "picture", metavar="PNG", help="Draw the same tokens as a picture made by csd.")
@click.option("--model", metavar="NAME", help="embedded (default), a folder, or a hub id.")
@click.option("-n", "--count", type=click.IntRange(1), default=1, show_default=True, help="Pictures per prompt.")
@click.option(
    "--seed",
    type=click.IntRange(0, SEEDS - 1),
    help="Picture i of the whole job uses seed + i. Default: random, and printed.",
)
@click.option("--size", metavar="WxH", help="Pixels, like 768x512. Default: the model's; `csd info` lists its sizes.")
@click.option("--negative-prompt", metavar="TEXT", help="What the guidance moves away from.")
@part_options
@click.option("--guidance-scale", type=float, metavar="X", help="1 is off, and half the work. Default: the model's.")
@click.option("--temperature", type=float, metavar="X", help="0 always takes the most probable token.")
@click.option("--top-k", type=int, metavar="K", help="Only the K most probable tokens; 0 is off.")
@click.option("--top-p", type=float, metavar="P", help="Only the most probable tokens of total mass P; 1 is off.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--dtype", default="auto", show_default=True, help="auto, float32, float16 or bfloat16.")
@click.option("--threads", type=click.IntRange(1), help="Processor threads. Default: free cores.")
@click.option("--compile", "compiled", is_flag=True, help="Compile first (about a minute): pays for many pictures.")
@click.option("--cuda-graphs", is_flag=True, help="Capture passes in CUDA graphs; goes with --compile. CUDA only.")
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Pictures drawn at once, which is what bounds the memory; does not change them.",
)
@click.option(
    "--refill",
    is_flag=True,
    help="Begin the next picture as soon as one is finished, not with its batch; saves them four batches at a time.",
)
@click.option("-o", "--output", metavar="PATH", help="A .png file or a folder. Default: ./PROMPT-SEED.png")
@click.option("--resume", is_flag=True, help="Leave out pictures that an earlier run with this --seed has saved.")
@click.option("--overwrite", is_flag=True, help="Replace files; otherwise -1, -2, ... is added to the name.")
@click.option("--scale", type=click.IntRange(1, 32), default=1, show_default=True, help="Enlarge the saved picture.")
@click.option("--maps", is_flag=True, help="Beside each picture, its entropy, acceptance, pass and drift maps.")
@click.option("--json", "json_file", metavar="FILE", help="Write the traces, one object per picture.")
@click.option("-v", "--verbose", is_flag=True, help="Say what was chosen and why.")
@click.pass_context
def generate(ctx: click.Context, parts: PartOptions, **given) -> None:  # fmt: skip
    """Draw one picture, or -n, for each PROMPT (quote one of several words).

    \b
    csd generate "a red apple on white" --preset fast --maps
    csd generate --prompts list.txt --seed 7 -o pictures/ --json traces.json
    csd generate --from pictures/a-red-apple-on-white-7.png
    accelerate launch -m csd_pipeline.cli generate --prompts list.txt --seed 7 -o pictures/ --resume
    csd generate "a fox" --window 16 --redraw coupled --relaxation entropy --relax lam=0.5 --filter tv:delta=0.65
    """
    if given["picture"]:
        _refuse_beside_picture(ctx)
        job = job_from_picture(given["picture"], given["model"])
    else:
        job = _job_from_options(parts, given)
    job.destination = Destination.of(given["output"], given["overwrite"])
    job.json_file = _json_path(given["json_file"])
    with status("importing torch"), collector_paused():
        from .run import run_job

    machine = {name: given[name] for name in ("device", "dtype", "threads")}
    names = ("batch", "refill", "scale", "maps", "verbose", "compiled", "cuda_graphs")
    if not run_job(job, machine, **{name: given[name] for name in names}):
        ctx.exit(INTERRUPTED)


def _job_from_options(parts: PartOptions, given: dict) -> Job:
    if parts.preset is not None:
        require_choice("preset", parts.preset, preset_names())
    prompts = list(given["prompts"])
    if given["prompt_file"] and prompts:
        raise ValueError("got prompts and --prompts FILE; give one of them")
    if given["prompt_file"]:
        prompts = read_prompts(given["prompt_file"])
    if not prompts:
        raise ValueError('nothing to draw: give a "prompt", --prompts FILE, or --from PICTURE')
    if len(prompts) > 2 and not any(" " in prompt for prompt in prompts):
        note(f"drawing {len(prompts)} prompts of one word each; quote a prompt of several words")
    seed = secrets.randbits(32) if given["seed"] is None else given["seed"]
    names = ("negative_prompt", "guidance_scale", "temperature", "top_k", "top_p")
    sampling = Sampling(**{name: given[name] for name in names})
    images = plan_images(prompts, given["count"], seed)
    job = Job(given["model"] or EMBEDDED, images, sampling, parts, parse_size(given["size"]))
    job.seed_is_random, job.resume = given["seed"] is None, given["resume"]
    job.has_manifest = given["prompt_file"] is not None
    if job.resume and job.seed_is_random:
        raise ValueError("--resume knows the pictures of the earlier run by their seeds; give the --seed of that run")
    return job


def _refuse_beside_picture(ctx: click.Context) -> None:
    default = click.core.ParameterSource.DEFAULT
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name)
        if parameter.name in _IN_RECIPE and source not in (default, None):
            name = "a prompt" if parameter.name == "prompts" else parameter.opts[-1]
            raise ValueError(f"--from draws by the recipe in the picture; leave out {name}")


def _json_path(name: str | None) -> Path | None:
    """Checked before the work starts, so that the traces are not lost at its end."""
    if name is None:
        return None
    path = Path(name).expanduser()
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"--json {name}: give a file in a folder that exists")
    return path
