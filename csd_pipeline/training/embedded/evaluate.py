"""Measures prompt accuracy of a model: a sweep of sampling settings, then the gates with the best setting."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import JanusForConditionalGeneration, PreTrainedTokenizerFast

from ...evaluation.prompt_accuracy import PromptAccuracy
from .captions import canonical_caption, typed_caption
from .catalogue import Catalogue
from .pixel_codes import PixelCodes
from .sampling import decode_pictures, sample_tokens

CLASSES = {
    "trained plain": (False, "plain"),
    "trained textured": (False, "textured"),
    "held-out plain": (True, "plain"),
    "held-out textured": (True, "textured"),
}
BATCH = 40
FREE_WORDING = "trained pairs, free wording"


@dataclass
class ClassResult:
    """Verdicts on the pictures of one class of pairs: (subject, background, subject right, background right)."""

    verdicts: list[Sequence] = field(default_factory=list)

    def __str__(self) -> str:
        return f"subject {self.subject_right:.3f}, background {self.background_right:.3f} (n = {self.count})"

    @property
    def count(self) -> int:
        return len(self.verdicts)

    @property
    def subject_right(self) -> float:
        return sum(v[2] for v in self.verdicts) / max(1, self.count)

    @property
    def background_right(self) -> float:
        return sum(v[3] for v in self.verdicts) / max(1, self.count)


@dataclass(frozen=True)
class Order:
    """What to measure: `count` pictures of the class `name` with one sampling setting."""

    name: str
    count: int
    guidance: float
    temperature: float
    seed: int


@dataclass
class Evaluator:
    """Samples pictures and judges them. `codes` given: draw with the bare centroids, 30 times faster."""

    model: JanusForConditionalGeneration
    tokenizer: PreTrainedTokenizerFast
    catalogue: Catalogue
    judge: PromptAccuracy
    codes: PixelCodes | None = None

    def measure(self, order: Order, start: int) -> list[tuple]:
        """Verdicts on pictures `start` to `start + BATCH` of the order; every pair is used about equally often."""
        pairs = self.pairs(order.name, order.count, order.seed)[start : start + BATCH]
        rng = np.random.default_rng((order.seed, start))
        captions = [self._caption(order.name, pair, rng) for pair in pairs]
        setting = (order.guidance, order.temperature, order.seed + start)
        score = self.judge.score_labels(
            self.draw(sample_tokens(self.model, self.tokenizer, captions, *setting)), *torch.tensor(pairs).T
        )
        rights = zip(pairs, score.subject_right.tolist(), score.background_right.tolist(), strict=True)
        return [(*pair, subject, background) for pair, subject, background in rights]

    def _caption(self, name: str, pair: tuple[int, int], rng: np.random.Generator) -> str:
        if name == FREE_WORDING:
            return typed_caption(self.catalogue, *pair, rng)
        return canonical_caption(self.catalogue, *pair)

    def pairs(self, name: str, count: int, seed: int) -> list[tuple[int, int]]:
        """`count` pairs of a class: whole shuffled rounds of all its pairs, cut at the end."""
        held_out, kind = CLASSES.get(name, (False, "everywhere"))
        everything = self.catalogue.pairs(held_out, getattr(self.catalogue, kind))
        rng, chosen = np.random.default_rng(seed), []
        while len(chosen) < count:
            chosen += [everything[i] for i in rng.permutation(len(everything))]
        return chosen[:count]

    def draw(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.codes.decode(tokens) if self.codes else decode_pictures(self.model, tokens)


def sweep_orders(settings: list[tuple[float, float]], pictures: int, seed: int) -> list[Order]:
    """One order per (guidance, temperature) and class."""
    return [Order(name, pictures, *setting, seed) for setting in settings for name in CLASSES]


def sweep_rows(orders: list[Order], results: list[ClassResult]) -> list[dict]:
    """One row per setting: shares of every class and their mean over subjects and backgrounds; best row first."""
    rows: dict[tuple[float, float], dict] = {}
    for order, result in zip(orders, results, strict=True):
        start = {"guidance": order.guidance, "temperature": order.temperature, "n": order.count}
        row = rows.setdefault((order.guidance, order.temperature), start)
        row[order.name] = round(result.subject_right, 4)
        row[f"{order.name}, background"] = round(result.background_right, 4)
    for row in rows.values():
        shares = [row[name + what] for name in CLASSES for what in ("", ", background")]
        row["mean"] = round(sum(shares) / len(shares), 4)
    return sorted(rows.values(), key=lambda row: -row["mean"])


def gate_rows(results: dict[str, ClassResult], gates: dict[str, dict[str, float]]) -> list[dict]:
    """Measured value, gate and verdict for the subject and the background of every class; wording has no gate."""
    rows = []
    for name, result in results.items():
        for what in ("subject", "background"):
            value, gate = getattr(result, f"{what}_right"), gates.get(name, {}).get(what)
            row = {"pairs": name, "what": what, "n": result.count, "measured": round(value, 4), "gate": gate}
            rows.append({**row, "passed": None if gate is None else value >= gate})
    return rows


def accuracy_by(results: dict[str, ClassResult], key: Callable[[Sequence], str]) -> dict[str, tuple[float, int]]:
    """Subject accuracy and number of pictures per `key(verdict)`, weakest first."""
    groups: dict[str, list[bool]] = defaultdict(list)
    for result in results.values():
        for verdict in result.verdicts:
            groups[key(verdict)].append(verdict[2])
    rows = {name: (sum(right) / len(right), len(right)) for name, right in groups.items()}
    return dict(sorted(rows.items(), key=lambda item: item[1][0]))
