"""Runs measurements on several processes of one thread each."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from ...evaluation.prompt_accuracy import PromptAccuracy
from .catalogue import load_catalogue
from .cpu_memory import keep_freed_memory
from .evaluate import BATCH, ClassResult, Evaluator, Order
from .export import load_exported

_evaluator: Evaluator | None = None


@dataclass(frozen=True)
class Measuring:
    """Measures the model in `out_dir` with the judge in `judge_dir`; `quick` draws with the bare centroids."""

    out_dir: Path
    judge_dir: Path
    quick: bool
    processes: int

    def evaluator(self) -> Evaluator:
        model, tokenizer, codes = load_exported(self.out_dir)
        judge = PromptAccuracy.load(self.judge_dir)
        return Evaluator(model, tokenizer, load_catalogue(), judge, codes if self.quick else None)

    def run(self, orders: list[Order], report: Callable[[str], None]) -> list[ClassResult]:
        """One result per order, whatever the number of processes."""
        results = [ClassResult() for _ in orders]
        parts = [(index, start) for index, order in enumerate(orders) for start in range(0, order.count, BATCH)]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.processes, context, _start_worker, (self,)) as pool:
            verdicts = pool.map(_measure, [orders[index] for index, _ in parts], [start for _, start in parts])
            for (index, _), part in zip(parts, verdicts, strict=True):
                results[index].verdicts += part
                if results[index].count == orders[index].count:
                    report(f"{orders[index]}: {results[index]}")
        return results


def _start_worker(measuring: Measuring) -> None:
    global _evaluator
    torch.set_num_threads(1)
    keep_freed_memory()
    _evaluator = measuring.evaluator()


def _measure(order: Order, start: int) -> list[tuple]:
    return _evaluator.measure(order, start)
