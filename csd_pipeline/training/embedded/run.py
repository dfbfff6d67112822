"""The stages of `csd train embedded`, in order; each keeps what it finds done and continues what was interrupted."""

import json
import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

import torch

from .cpu_memory import keep_freed_memory
from .dataset import StickerDataset, load_dataset
from .evaluate import CLASSES, FREE_WORDING, ClassResult, Order, gate_rows, sweep_orders, sweep_rows
from .export import assemble_model, export_model, write_generation_config
from .history import present_stage, read_history, write_history
from .measuring import Measuring
from .model_card import write_model_card
from .pixel_codes import PixelCodes
from .sampling import decode_pictures
from .start import prepare_start
from .train_decoder import DecoderTrainer
from .train_metric import MetricTrainer, save_judge
from .train_target import TargetJob, train_target

STAGES = ("start", "target", "decoder", "metric", "export", "sweep", "gates", "card")
log = logging.getLogger(__name__)


def load_recipe(overrides: dict[str, float | int] | None = None) -> dict:
    """The numbers of the shipped recipe; `overrides` are {"target.steps": 4000, ...}."""
    recipe = json.loads(resources.files(__package__).joinpath("recipe.json").read_text(encoding="utf-8"))
    for key, value in (overrides or {}).items():
        section, _, name = key.rpartition(".")
        known = recipe.get(section, {}) if section else recipe
        if not isinstance(known, dict) or name not in known:
            allowed = [f"{s}.{n}" for s, numbers in recipe.items() if isinstance(numbers, dict) for n in numbers]
            raise ValueError(f"the recipe has no number {key!r}; it has: seed, texture_count, {', '.join(allowed)}")
        known[name] = value
    return recipe


@dataclass
class EmbeddedTraining:
    """Everything one training needs: where it works, where results go, and the numbers."""

    work_dir: Path
    out_dir: Path
    judge_dir: Path
    recipe: dict
    init: Path | None = None
    processes: int = 1

    @cached_property
    def dataset(self) -> StickerDataset:
        return load_dataset(self.work_dir, self.recipe["texture_count"], self.recipe["seed"])

    @property
    def codes(self) -> PixelCodes:
        return PixelCodes.load(self.work_dir / "start" / "codes.safetensors")

    def start(self) -> None:
        prepare_start(self.dataset, self.recipe, self.work_dir, self.init)

    def target(self) -> None:
        _ = self.dataset  # built once here, so that the processes find it cached
        processes = min(self.processes, self.recipe["target"]["batch"])  # each needs a row of the batch
        train_target(TargetJob(self.work_dir, deepcopy(self.recipe), processes))

    def decoder(self) -> None:
        model = assemble_model(self.work_dir, self.recipe)
        trainer = DecoderTrainer(model, self.dataset, self.codes, self.recipe, self.work_dir / "decoder")
        trainer.train()
        test = trainer.test(self.recipe["decoder"]["test_pictures"])
        self._write_numbers("decoder", test)

    def metric(self) -> None:
        trainer = MetricTrainer(self.dataset, self.codes, self.recipe)
        judge = trainer.train()
        model = assemble_model(self.work_dir, self.recipe)
        test = trainer.test_all(judge, lambda tokens: decode_pictures(model, tokens))
        save_judge(judge, self.judge_dir, self.recipe["metric"]["width"], test)

    def export(self) -> None:
        export_model(assemble_model(self.work_dir, self.recipe), self.work_dir, self.out_dir)
        stages = read_history(self.work_dir / "start")
        write_history(self.out_dir, [*stages, present_stage(self.work_dir, self.recipe, self.dataset.catalogue)])

    def sweep(self) -> None:
        """Prompt accuracy of every setting, then of the best few on more pictures; the winner becomes the default."""
        numbers = self.recipe["evaluation"]
        settings = [(g, t) for g in numbers["guidances"] for t in numbers["temperatures"]]
        first = self._sweep_round(settings, numbers["sweep_pictures"], self.recipe["seed"])
        finalists = [(row["guidance"], row["temperature"]) for row in first[: numbers["finalists"]]]
        final = self._sweep_round(finalists, numbers["finalist_pictures"], self.recipe["seed"] + 100)
        self._write_numbers("sweep", final + first[len(final) :])
        write_generation_config(self.out_dir, final[0])

    def _sweep_round(self, settings: list[tuple[float, float]], pictures: int, seed: int) -> list[dict]:
        orders = sweep_orders(settings, pictures, seed)
        return sweep_rows(orders, self._measuring(quick=True).run(orders, log.info))

    def gates(self) -> None:
        """Prompt accuracy with the best setting of the sweep, drawn with the VQ decoder."""
        numbers, seed, best = self.recipe["evaluation"], self.recipe["seed"] + 1, self._read_numbers("sweep")[0]
        counts = {**dict.fromkeys(CLASSES, numbers["gate_pictures"]), FREE_WORDING: numbers["wording_pictures"]}
        orders = [Order(name, count, best["guidance"], best["temperature"], seed) for name, count in counts.items()]
        results = dict(zip(counts, self._measuring(quick=False).run(orders, log.info), strict=True))
        self._write_numbers("verdicts", {name: result.verdicts for name, result in results.items()})
        self._write_numbers("gates", gate_rows(results, numbers["gates"]))

    def card(self) -> None:
        results = {name: ClassResult(verdicts) for name, verdicts in self._read_numbers("verdicts").items()}
        numbers = {name: self._read_numbers(name) for name in ("sweep", "gates", "decoder")}
        write_model_card(
            self.out_dir, self.judge_dir, self.recipe, self._measuring(quick=False).evaluator(), results, numbers
        )

    def _measuring(self, quick: bool) -> Measuring:
        return Measuring(self.out_dir, self.judge_dir, quick, self.processes)

    def _read_numbers(self, name: str) -> list | dict:
        path = self.work_dir / "results" / f"{name}.json"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: run the stage that measures {name!r} first")
        return json.loads(path.read_text(encoding="utf-8"))

    def _write_numbers(self, name: str, numbers: object) -> None:
        path = self.work_dir / "results" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def train_embedded(
    work_dir: str | Path,
    out_dir: str | Path,
    judge_dir: str | Path,
    stages: Sequence[str] = STAGES,
    init: str | Path | None = None,
    processes: int = 1,
    overrides: dict[str, float | int] | None = None,
) -> None:
    """Trains the embedded model; `init` continues from a model folder instead of starting from scratch.

    Big files (packages, checkpoints) stay in `work_dir`; the model goes to `out_dir`, the prompt-accuracy
    classifier to `judge_dir`. Interrupted stages continue when called again.
    """
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise ValueError(f"unknown stage {unknown[0]!r}; stages are {', '.join(STAGES)}, run in this order")
    keep_freed_memory()
    torch.set_num_threads(processes)
    training = EmbeddedTraining(
        Path(work_dir), Path(out_dir), Path(judge_dir), load_recipe(overrides), init and Path(init), processes
    )
    for stage in STAGES:
        if stage in stages:
            log.info("stage %s", stage)
            getattr(training, stage)()
