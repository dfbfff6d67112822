"""Measures prompt accuracy of a model: a sweep of sampling settings, then the gates with the best setting."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import JanusForConditionalGeneration, PreTrainedTokenizerFast

from ...evaluation.prompt_accuracy import PromptAccuracy, PromptScore
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
FREE_WORDING = "trained pairs, free wording"


@dataclass
class ClassResult:
    """Verdicts on the pictures of one class of pairs: (subject, background, subject right, background right)."""

    verdicts: list[Sequence] = field(default_factory=list)

    def __str__(self) -> str:
        return f"subject {self.subject_right:.3f}, background {self.background_right:.3f} (n = {self.count})"

    def add(self, pairs: list[tuple[int, int]], score: PromptScore) -> None:
        rights = zip(pairs, score.subject_right.tolist(), score.background_right.tolist(), strict=True)
        self.verdicts += [(*pair, subject, background) for pair, subject, background in rights]

    @property
    def count(self) -> int:
        return len(self.verdicts)

    @property
    def subject_right(self) -> float:
        return sum(v[2] for v in self.verdicts) / max(1, self.count)

    @property
    def background_right(self) -> float:
        return sum(v[3] for v in self.verdicts) / max(1, self.count)


@dataclass
class Evaluator:
    """Samples pictures and judges them. `codes` given: draw with the bare centroids, 30 times faster."""

    model: JanusForConditionalGeneration
    tokenizer: PreTrainedTokenizerFast
    catalogue: Catalogue
    judge: PromptAccuracy
    codes: PixelCodes | None = None
    batch: int = 50

    def measure(self, name: str, count: int, guidance: float, temperature: float, seed: int) -> ClassResult:
        """Prompt accuracy on `count` pictures of the class `name`; every pair of it is used about equally often."""
        result, rng, chosen = ClassResult(), np.random.default_rng(seed), self.pairs(name, count, seed)
        for start in range(0, count, self.batch):
            pairs = chosen[start : start + self.batch]
            captions = [self._caption(name, pair, rng) for pair in pairs]
            tokens = sample_tokens(self.model, self.tokenizer, captions, guidance, temperature, seed + start)
            result.add(pairs, self.judge.score_labels(self.draw(tokens), *torch.tensor(pairs).T))
        return result

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


def sweep(evaluator: Evaluator, numbers: dict, seed: int, report: Callable[[dict], None]) -> list[dict]:
    """One row per (guidance, temperature): accuracy of each class and their mean; best row first."""
    rows = []
    for guidance in numbers["guidances"]:
        for temperature in numbers["temperatures"]:
            row = {"guidance": guidance, "temperature": temperature}
            for name in CLASSES:
                result = evaluator.measure(name, numbers["sweep_pictures"], guidance, temperature, seed)
                row[name] = round(result.subject_right, 4)
                row[f"{name}, background"] = round(result.background_right, 4)
            row["mean"] = round(sum(row[name] for name in CLASSES) / len(CLASSES), 4)
            rows.append(row)
            report(row)
    return sorted(rows, key=lambda row: -row["mean"])


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
