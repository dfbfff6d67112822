"""``csd bench``: compare methods on one model, print a table, write JSON with the whole recipe."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

import click

DEFAULT_METHODS = ("exact-fresh", "exact-coupled", "exact-gumbel", "csd-paper", "csd-coupled", "balanced")


@click.command("bench")
@click.option("--model", default="embedded", show_default=True, help="Model name, folder or hub id.")
@click.option(
    "--method", "methods", multiple=True, help="Method to compare (repeatable). Default: all of the README's table."
)
@click.option(
    "--window", "windows", multiple=True, type=click.IntRange(1), help="Window (repeatable). Default: 4 8 16 32."
)
@click.option("--prompts", "count", default=16, show_default=True, type=click.IntRange(1), help="Number of prompts.")
@click.option("--prompt-file", type=click.Path(exists=True, dir_okay=False), help="Prompts, one per line.")
@click.option("--seed", default=0, show_default=True, help="Prompt i uses seed + i in every arm.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Torch threads.")
@click.option("--guidance-scale", type=float, help="Default: the model's.")
@click.option("--temperature", type=float, help="Default: the model's.")
@click.option("--quick", is_flag=True, help="Four prompts, three arms; says whether speculation pays on this machine.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write recipe, rows and single runs here.")
def bench_command(
    model, methods, windows, count, prompt_file, seed, threads, guidance_scale, temperature, quick, json_file
):
    """Compare decoding methods side by side, in forwards, time, drift and quality."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import torch

    from csd_pipeline import CSDAutoregressivePipeline
    from csd_pipeline.sampling_defaults import warp_of
    from csd_pipeline.sources import EMBEDDED
    from csd_pipeline.targets import adapter_for

    from .arms import build_arms
    from .bench import Bench, none_if_nan
    from .prompt_accuracy import PromptAccuracy
    from .summary import markdown, summarise

    torch.set_num_threads(threads)
    if quick and (methods or windows):
        raise click.UsageError("--quick chooses its own methods and windows; leave out --method and --window")
    if json_file and not Path(json_file).resolve().parent.is_dir():
        raise click.UsageError(f"--json {json_file}: give a file in a folder that exists")
    methods, windows = list(methods) or list(DEFAULT_METHODS), list(windows) or [4, 8, 16, 32]
    if quick:
        methods, windows, count = ["exact-gumbel", "balanced"], [16], min(count, 4)
    arms = build_arms(methods, windows)
    pipeline = CSDAutoregressivePipeline.from_pretrained(model)
    given = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": None, "top_p": None}
    bench = Bench(pipeline, warp_of(pipeline, adapter_for(pipeline.target), given, None))
    prompts = _prompts(prompt_file)[:count]
    judge = PromptAccuracy.load() if model == EMBEDDED else None
    if judge is not None:
        for prompt in prompts:
            judge.labels(prompt)  # a prompt it can not judge is refused before the work
    runs = bench.run(arms, prompts, seed, transformers_arm=bench.transformers_can_draw())
    rows = summarise(runs, judge and _quality(judge, bench, runs))
    recipe = _recipe(model, bench.warp, prompts, seed, threads)
    click.echo(f"{recipe['machine']}, {threads} thread(s), {len(prompts)} prompts, seed {seed}, {bench.warp}\n")
    click.echo(markdown(rows))
    if json_file:
        table = [{name: none_if_nan(value) for name, value in asdict(row).items()} for row in rows]
        report = {"recipe": recipe, "rows": table, "runs": [run.to_dict() for run in runs]}
        Path(json_file).write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if quick:
        _advise(rows)


def _advise(rows) -> None:
    best = max(rows[2:], key=lambda row: row.wall_ratio if row.arm != "transformers" else 0)
    verdict = "fastest here" if best.wall_ratio >= 1 else "warning: plain decoding (--preset ar) is faster here than"
    click.echo(f"\n{verdict}: {best.arm}, {best.wall_ratio:.2f}x plain decoding")


def _prompts(prompt_file: str | None) -> list[str]:
    if prompt_file:
        lines = Path(prompt_file).read_text(encoding="utf-8").splitlines()
        prompts = [line.strip() for line in lines if line.strip()]
        if not prompts:
            raise click.UsageError(f"--prompt-file {prompt_file}: no prompts in it, one a line")
        return prompts
    return json.loads((Path(__file__).parent / "bench_prompts.json").read_text(encoding="utf-8"))


def _quality(judge, bench, runs) -> dict[str, tuple[float, float]]:
    """Prompt accuracy (subject, background) per arm."""
    quality = {}
    for arm in dict.fromkeys(run.arm for run in runs):
        chosen = [run for run in runs if run.arm == arm]
        score = judge.score(bench.pixels(chosen), [run.prompt for run in chosen])
        quality[arm] = (score.subject_right.float().mean().item(), score.background_right.float().mean().item())
    return quality


def _recipe(model: str, warp, prompts: list[str], seed: int, threads: int) -> dict:
    import diffusers
    import torch
    import transformers

    from csd_pipeline import __version__

    return {
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores, no GPU",
        "versions": {
            "csd_pipeline": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "diffusers": diffusers.__version__,
            "python": platform.python_version(),
        },
        "model": model,
        "sampling": asdict(warp),
        "prompts": prompts,
        "seed": seed,
        "threads": threads,
    }
