"""`csd bench --suite batch`: loads the model once, measures every thread count, prints a table, writes JSON."""

from __future__ import annotations

import json

import click
import torch

from csd_pipeline.evaluation.batch_suite import arms_of, markdown, measure
from csd_pipeline.evaluation.machine import machine_facts, machine_line

from .bench_plan import Outputs, Plan
from .bench_run import load_pipeline
from .errors import note

_ROUNDS = 3


def run_batch_suite(plan: Plan, batches: tuple[int, ...], sampling: dict, machine: dict, outputs: Outputs) -> None:
    """Measure and report.

    Args:
        plan: model, prompts, windows, seed and thread counts.
        batches: images drawn at once.
        sampling, machine: as of the other suite.
    """
    torch.set_num_threads(plan.threads[0])  # first: a number format may be chosen by measurement
    pipeline, arms = load_pipeline(plan.model, machine), arms_of(batches, plan.windows)
    pipeline.set_progress_bar_config(disable=True)
    given = {name: value for name, value in sampling.items() if value is not None}
    facts, results = machine_facts(pipeline.device), []
    for threads in plan.threads:
        torch.set_num_threads(threads)
        words = f"{threads} thread{'s' if threads > 1 else ''}"

        def tell(done: int, words: str = words) -> None:
            note(f"{words}: {done} of {_ROUNDS} rounds done")

        rows = measure(pipeline, arms, plan.prompts, plan.seed, _ROUNDS, given, tell)
        click.echo(f"{words}, {len(plan.prompts)} images, {machine_line(facts)}\n\n{markdown(rows)}\n")
        results.append({"threads": threads, "rows": [row.to_dict() for row in rows]})
    if outputs.json_file is not None:
        recipe = {"machine": facts, "prompts": plan.prompts, "seed": plan.seed, "sampling": given, "rounds": _ROUNDS}
        content = json.dumps({"recipe": recipe, "results": results}, indent=1, allow_nan=False)
        outputs.write(outputs.json_file, content + "\n")
