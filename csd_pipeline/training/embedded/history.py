"""What has been trained so far: the list of stages that ships beside a model as `training.json`."""

import json
from pathlib import Path

import torch

from .catalogue import Catalogue

FILE = "training.json"


def read_history(folder: Path | None) -> list[dict]:
    """The stages behind the model in `folder`; empty for a start from scratch or a folder without the file."""
    if folder is None or not (folder / FILE).exists():
        return []
    return json.loads((folder / FILE).read_text(encoding="utf-8"))


def write_history(folder: Path, stages: list[dict]) -> None:
    (folder / FILE).write_text(json.dumps(stages, indent=1) + "\n", encoding="utf-8")


def present_stage(work_dir: Path, recipe: dict, catalogue: Catalogue) -> dict:
    """The stage that the work directory holds: steps, pictures and tokens of the target, and its losses."""
    checkpoint = torch.load(work_dir / "target" / "checkpoint.pt", weights_only=True)
    numbers, steps = recipe["target"], checkpoint["step"]
    log = [json.loads(line) for line in (work_dir / "target" / "log.jsonl").read_text("utf-8").splitlines()]
    return {
        "steps": steps,
        "batch": numbers["batch"],
        "pictures": steps * numbers["batch"],
        "tokens": steps * numbers["batch"] * 256,
        "subjects": len(catalogue.subjects),
        "backgrounds": len(catalogue.backgrounds),
        "seed": recipe["seed"],
        "training_nll": _last(log, "nll"),
        "held_out_nll": _last(log, "held_out_nll"),
        "precision": "float32",
    }


def _last(log: list[dict], key: str) -> float | None:
    values = [line[key] for line in log if key in line]
    return values[-1] if values else None
