"""Runs a comparison: loads the model once, measures every thread count, prints tables, writes JSON and report."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import click
import torch

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.decoding import Warp
from csd_pipeline.evaluation.bench import Bench
from csd_pipeline.evaluation.machine import machine_facts
from csd_pipeline.evaluation.prompt_accuracy import PromptAccuracy
from csd_pipeline.evaluation.summary import Row, summarise
from csd_pipeline.evaluation.tables import markdown, naive_lines
from csd_pipeline.recipe import describe
from csd_pipeline.sampling_defaults import warp_of
from csd_pipeline.targets import adapter_for

from .bench_arms import DEFAULT_ARMS
from .bench_plan import Outputs, Plan
from .devices import choose_device, choose_dtype
from .errors import note, quiet_libraries, status
from .jobs import EMBEDDED


def run_plan(plan: Plan, sampling: dict, machine: dict, outputs: Outputs) -> None:
    """Measure and report.

    Args:
        sampling: ``guidance_scale``, ``temperature``, ``top_k``, ``top_p`` of every arm; None is the model's own.
        machine: the wishes ``device`` and ``dtype``.

    Raises:
        ValueError: a sampling number out of range, a prompt the judge can't judge, or an unusable device.
    """
    Warp(**{name: value for name, value in sampling.items() if value is not None})
    judge = PromptAccuracy.load() if plan.model == EMBEDDED else None
    for prompt in plan.prompts if judge is not None else ():
        judge.labels(prompt)  # a prompt it can't judge is refused before the work
    bench = _load(plan, sampling, machine, judge)
    arms = _arms(plan, bench)
    recipe = _recipe(plan, arms, bench)
    tables, entries = {}, []
    for threads in plan.threads:
        tables[threads], runs = _measure(plan, arms, bench, threads)
        rows = [row.to_dict() for row in tables[threads]]
        entries.append({"threads": threads, "rows": rows, "images": [run.to_dict() for run in runs]})
    if outputs.json_file is not None:
        content = json.dumps({"recipe": recipe, "results": entries}, indent=1, allow_nan=False)
        outputs.write(outputs.json_file, content + "\n")
    if outputs.report_file is not None:
        from csd_pipeline.evaluation.report import html_report

        sheets = _map_sheets(plan, arms, bench, tables[plan.threads[0]])
        outputs.write(outputs.report_file, html_report(recipe, tables, sheets))
    if plan.quick:
        click.echo(_advice(tables[plan.threads[0]]))


def _load(plan: Plan, sampling: dict, machine: dict, judge) -> Bench:
    torch.set_num_threads(plan.threads[0])  # first: a number format may be chosen by measurement
    pipeline = load_pipeline(plan.model, machine)
    return Bench(pipeline, warp_of(pipeline, adapter_for(pipeline.target), sampling, None), judge)


def load_pipeline(model: str, machine: dict) -> CSDAutoregressivePipeline:
    """The model on the device and in the number format that ``machine`` wishes for."""
    device, _ = choose_device(machine["device"])
    wanted = machine["dtype"]
    if model == EMBEDDED and wanted == "auto":
        wanted = "float32"  # as in `csd generate`: small enough for any device
    dtype, _ = choose_dtype(wanted, device)
    quiet_libraries()
    with status(f"loading {model}"):
        return CSDAutoregressivePipeline.from_pretrained(model, dtype=getattr(torch, dtype)).to(device)


def _arms(plan: Plan, bench: Bench) -> list:
    """The default arms hold a naive one, which other families than Janus can't run; asked for, it is refused."""
    if plan.arm_texts is DEFAULT_ARMS and not bench.naive_can_draw:
        return [arm for arm in plan.arms if arm.loop != "naive"]
    return plan.arms


def _measure(plan: Plan, arms: list, bench: Bench, threads: int) -> tuple[list[Row], list]:
    """Rows and single images of one thread count; progress goes to stderr, the table to stdout."""
    torch.set_num_threads(threads)
    started, words = time.monotonic(), f"{threads} thread{'s' if threads > 1 else ''}"

    def tell(done: int) -> None:
        seconds = time.monotonic() - started
        left = seconds / (done + 1) * (len(plan.prompts) - done)
        note(f"{words}: {done} of {len(plan.prompts)} prompts done in {seconds:.0f} s, about {left:.0f} s left")

    runs = bench.run(arms, plan.prompts, plan.seed, tell)
    rows = summarise(runs, arms, bench.peak_memory)
    click.echo(f"{words}, {len(plan.prompts)} prompts, seed {plan.seed}, {bench.warp}\n\n{markdown(rows)}\n")
    for line in naive_lines(rows):
        click.echo(line)
    return rows, runs


def _map_sheets(plan: Plan, arms: list, bench: Bench, rows: list[Row]) -> list:
    """Maps of the first prompt: the undrifted and the drifting method that need the fewest forwards."""
    from csd_pipeline.evaluation.maps import sheet
    from csd_pipeline.evaluation.report import MapSheet

    figures = {row.arm: row for row in rows}
    drafting = [arm for arm in arms if arm.loop == "csd" and arm.parts["drafter"].window > 1]
    sheets = []
    for drifts in (False, True):
        fitting = [arm for arm in drafting if (figures[arm.name].drift_per_token.mean > 0) == drifts]
        if fitting:
            arm = min(fitting, key=lambda arm: figures[arm.name].nfe.mean)
            picture, trace = bench.maps(arm, plan.prompts[0], plan.seed)
            sheets.append(MapSheet(f"{arm.name}: {plan.prompts[0]}, seed {plan.seed}", sheet(picture, trace)))
    return sheets


def _recipe(plan: Plan, arms: list, bench: Bench) -> dict:
    """Everything needed to run the comparison again, and what it ran on."""
    return {
        "model": Path(plan.model).name if Path(plan.model).is_dir() else plan.model,  # never a whole local path
        "dtype": str(bench.pipeline.target.dtype).removeprefix("torch."),
        "machine": machine_facts(bench.pipeline.device),
        "sampling": asdict(bench.warp),
        "prompts": plan.prompts,
        "seed": plan.seed,
        "threads": list(plan.threads),
        "arm_texts": list(plan.arm_texts),
        "windows": list(plan.windows),
        "arms": [
            {"name": arm.name, "loop": arm.loop, "seed_offset": arm.seed_offset}
            | {kind: describe(part) for kind, part in arm.parts.items()}
            for arm in arms
        ],
    }


def _advice(rows: list[Row]) -> str:
    best = max((row for row in rows if " W=" in row.arm), key=lambda row: row.over_plain.median)
    slower = "warning: plain decoding (--preset ar) is faster here than"
    verdict = "fastest here:" if best.over_plain.median >= 1 else slower
    return f"{verdict} {best.arm}, {best.over_plain.median:.2f}x plain decoding"
