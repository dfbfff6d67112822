"""The model card: README.md and samples.png beside the weights, written from the measured numbers."""

import json
from pathlib import Path

from .captions import canonical_caption
from .catalogue import Catalogue
from .evaluate import ClassResult, Evaluator, accuracy_by
from .history import read_history
from .picture_grid import save_grid
from .sampling import sample_tokens
from .sources import FLUENT, LABELS, NOTO

TEMPLATE = Path(__file__).with_name("model_card.md")
SAMPLE_PAIRS = (
    ("red apple", "white"), ("rocket", "starry night"), ("panda", "grass"), ("ghost", "purple"),
    ("pizza", "wooden table"), ("house", "sunset"), ("flag of japan", "blue"), ("sailboat", "sea"),
    ("fox", "teal"), ("snowman", "cloudy sky"), ("butterfly", "yellow"), ("guitar", "checkered floor"),
    ("sunflower", "beige"), ("lion", "brick wall"), ("doughnut", "polka dots"), ("castle", "rainbow"),
)  # fmt: skip


def write_model_card(
    out_dir: Path,
    judge_dir: Path,
    recipe: dict,
    evaluator: Evaluator,
    results: dict[str, ClassResult],
    numbers: dict,
) -> None:
    """Writes README.md and samples.png to `out_dir`; `numbers` holds the results of the stages by name."""
    catalogue, seed, best = evaluator.catalogue, recipe["seed"], numbers["sweep"][0]
    save_samples(evaluator, best, seed, out_dir / "samples.png")
    judge = json.loads((judge_dir / "config.json").read_text(encoding="utf-8"))
    fields = {
        "parameters": f"{sum(p.numel() for p in evaluator.model.parameters()) / 1e6:.1f}",
        "guidance": best["guidance"],
        "temperature": best["temperature"],
        "seed": seed,
        "packages": ", ".join(f"`{p.name}` {p.version}" for p in (NOTO, FLUENT, LABELS)),
        "history": _history(read_history(out_dir)),
        "gates": _gates(numbers["gates"]),
        "sweep": _sweep(numbers["sweep"]),
        "decoder": "{decoder_psnr:.1f} dB against {centroids_psnr:.1f} dB for the bare centroids "
                   "(mean PSNR, {pictures} held-out pictures)".format(**numbers["decoder"]),
        "judge": _judge(judge["test_on_held_out_pairs"]),
        "subjects": ", ".join(s.name for s in catalogue.subjects),
        "plain": ", ".join(catalogue.backgrounds[b].name for b in catalogue.plain),
        "textured": ", ".join(catalogue.backgrounds[b].name for b in catalogue.textured),
        "weak_subjects": _weak(accuracy_by(results, lambda v: catalogue.subjects[v[0]].name), 12),
        "weak_backgrounds": _weak(accuracy_by(results, lambda v: catalogue.backgrounds[v[1]].name), 100),
    }  # fmt: skip
    (out_dir / "README.md").write_text(TEMPLATE.read_text("utf-8").format(**fields), encoding="utf-8")


def save_samples(evaluator: Evaluator, best: dict, seed: int, path: Path) -> None:
    """Sixteen fixed prompts, one seed, nothing picked."""
    captions = [canonical_caption(evaluator.catalogue, *pair) for pair in sample_pairs(evaluator.catalogue)]
    tokens = sample_tokens(evaluator.model, evaluator.tokenizer, captions, best["guidance"], best["temperature"], seed)
    save_grid(evaluator.draw(tokens), 8, path)


def sample_pairs(catalogue: Catalogue) -> list[tuple[int, int]]:
    subjects = [s.name for s in catalogue.subjects]
    backgrounds = [b.name for b in catalogue.backgrounds]
    return [(subjects.index(s), backgrounds.index(b)) for s, b in SAMPLE_PAIRS]


def _table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _history(stages: list[dict]) -> str:
    keys = ["steps", "batch", "pictures", "subjects", "backgrounds", "precision", "training_nll", "held_out_nll"]
    keys += ["note"] * any("note" in stage for stage in stages)
    rows = [[number + 1, *(stage.get(key, "") for key in keys)] for number, stage in enumerate(stages)]
    return _table(["stage", *(key.replace("_", " ") for key in keys)], rows)


def _gates(rows: list[dict]) -> str:
    cells = []
    for row in rows:
        low, high = wilson_interval(row["measured"], row["n"])
        gate = "none" if row["gate"] is None else f"{row['gate']:.0%}"
        cells.append(
            [
                row["pairs"],
                row["what"],
                row["n"],
                f"{row['measured']:.1%}",
                f"{low:.1%} to {high:.1%}",
                gate,
                _verdict(row),
            ]
        )
    return _table(["pairs", "right", "n", "measured", "95 % interval", "gate", "verdict"], cells)


def _verdict(row: dict) -> str:
    if row["gate"] is None:
        return ""
    return "passed" if row["passed"] else f"missed by {100 * (row['gate'] - row['measured']):.1f} points"


def _sweep(rows: list[dict]) -> str:
    names = [key for key in rows[0] if key not in ("guidance", "temperature", "n", "mean") and "background" not in key]
    ordered = sorted(rows, key=lambda row: (row["guidance"], row["temperature"]))
    cells = [[row["guidance"], row["temperature"], row["n"], *(f"{row[n]:.0%}" for n in names)] for row in ordered]
    return _table(["guidance", "temperature", "n per class", *names], cells)


def _judge(test: dict) -> str:
    shares = [f"{share:.1%} {name}" for name, share in test.items() if name != "pictures"]
    return f"{'; '.join(shares)} (n = {test['pictures']})"


def _weak(table: dict[str, tuple[float, int]], count: int) -> str:
    rows = [[name, f"{share:.0%}", n] for name, (share, n) in list(table.items())[:count]]
    return _table(["", "subject right", "n"], rows)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """95 % interval of a share measured on `count` pictures."""
    z = 1.96
    centre, spread = share + z * z / (2 * count), z * (share * (1 - share) / count + z * z / (4 * count**2)) ** 0.5
    return (centre - spread) / (1 + z * z / count), (centre + spread) / (1 + z * z / count)
