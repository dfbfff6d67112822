"""`csd bench`: compare methods on one model, print a table, write JSON with the whole recipe and an HTML report."""

from __future__ import annotations

import json
from importlib import resources

import click

from csd_pipeline.evaluation.gpu_suite.shapes import SHAPES

from .bench_arms import DEFAULT_ARMS, QUICK_ARMS, build_arms
from .bench_plan import Outputs, Plan
from .bench_suites import BATCH, GPU, METHODS, refuse_foreign_options
from .errors import status
from .jobs import EMBEDDED, read_prompts

DEFAULT_WINDOWS = (4, 8, 16, 32)


@click.command()
@click.option(
    "--suite",
    type=click.Choice((METHODS, BATCH, GPU)),
    default=METHODS,
    show_default=True,
    help="methods: on one model. batch: images per second by batch size. gpu: speed of one GPU on random weights, in "
    "less than 8 minutes; takes --shape, --device, --json and --overwrite.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=click.Choice(tuple(SHAPES)),
    help="Of the gpu suite, repeatable. Default: 1b and 7b; with --device cpu, tiny.",
)
@click.option(
    "--batch",
    "batches",
    multiple=True,
    type=click.IntRange(2),
    metavar="N",
    help="Of the batch suite, repeatable: images drawn at once, besides one. Default: 8.",
)
@click.option("--model", default=EMBEDDED, show_default=True, metavar="NAME", help="embedded, a folder, or a hub id.")
@click.option(
    "--arm",
    "arm_texts",
    multiple=True,
    metavar="WORDS",
    help="A method to compare, repeatable: a preset or a relaxation with its knobs, then options of "
    "`csd generate` without dashes. Default: the methods of the README's table.",
)
@click.option(
    "--window",
    "windows",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Window of the arms that name none, repeatable. Default: 4 8 16 32.",
)
@click.option("--prompts", "count", type=click.IntRange(1), default=16, show_default=True, help="Number of prompts.")
@click.option("--prompt-file", metavar="FILE", help="Prompts, one a line. Default: sixteen of the embedded model's.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63), default=0, show_default=True, help="Prompt i uses seed + i in every arm."
)
@click.option(
    "--threads",
    "threads",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Processor threads; repeat it to measure several counts one after the other. Default: 1.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--dtype", default="auto", show_default=True, help="auto, float32, float16 or bfloat16.")
@click.option("--guidance-scale", type=float, metavar="X", help="Of all arms. Default: the model's.")
@click.option("--temperature", type=float, metavar="X", help="Of all arms. Default: the model's.")
@click.option("--top-k", type=int, metavar="K", help="Of all arms. Default: the model's.")
@click.option("--top-p", type=float, metavar="P", help="Of all arms. Default: the model's.")
@click.option("--quick", is_flag=True, help="Four prompts, two methods; says whether speculation pays on this machine.")
@click.option("--json", "json_file", metavar="FILE", help="Write recipe, rows and single images.")
@click.option("--report", "report_file", metavar="FILE", help="Write an HTML report with plots; needs matplotlib.")
@click.option("--overwrite", is_flag=True, help="Replace files; otherwise -1, -2, ... is added to the name.")
@click.pass_context
def bench(ctx, suite, shapes, batches, json_file, report_file, overwrite, device, dtype, **given):  # fmt: skip
    """Compare decoding methods side by side: forwards, time, memory, drift and quality.

    \b
    csd bench --json bench.json --report bench.html --threads 1 --threads 2
    csd bench --arm balanced --arm "entropy:lam=0.5 filter=tv:delta=0.65 window=16 redraw=coupled"
    csd bench --arm "csd-janus-pro-7b-speed" --arm "csd-janus-pro-7b-speed loop=naive label=released"
    csd bench --suite batch --batch 4 --batch 8
    csd bench --suite gpu --json gpu.json
    """
    refuse_foreign_options(ctx, suite)
    if suite == GPU:
        outputs = Outputs.of(json_file, None, overwrite)
        with status("importing torch"):
            from .bench_gpu import run_gpu_suite

        return run_gpu_suite(shapes, device, outputs)
    sampling = {name: given.pop(name) for name in ("guidance_scale", "temperature", "top_k", "top_p")}
    plan, outputs = _plan(**given), Outputs.of(json_file, report_file, overwrite)
    if suite == BATCH:
        with status("importing torch"):
            from .bench_batch import run_batch_suite

        return run_batch_suite(plan, batches or (8,), sampling, {"device": device, "dtype": dtype}, outputs)
    with status("importing torch"):
        from .bench_run import run_plan

    run_plan(plan, sampling, {"device": device, "dtype": dtype}, outputs)


def _plan(model, arm_texts, windows, count, prompt_file, seed, threads, quick) -> Plan:
    if quick and (arm_texts or windows):
        raise click.UsageError("--quick chooses its own arms and windows; leave out --arm and --window")
    texts, sizes = arm_texts or DEFAULT_ARMS, windows or DEFAULT_WINDOWS
    if quick:
        texts, sizes, count = QUICK_ARMS, (16,), min(count, 4)
    prompts = read_prompts(prompt_file) if prompt_file else _own_prompts()
    if len(set(threads)) < len(threads):
        raise click.UsageError("--threads: the same count twice")
    return Plan(model, build_arms(texts, sizes), texts, sizes, prompts[:count], seed, threads or (1,), quick)


def _own_prompts() -> list[str]:
    file = resources.files("csd_pipeline").joinpath("evaluation", "bench_prompts.json")
    return json.loads(file.read_text(encoding="utf-8"))
