"""Trains the prompt-accuracy classifier on renderings and on pictures drawn from their codes, noisy and blurred."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from ...evaluation.prompt_accuracy import PromptAccuracy, PromptClassifier
from .catalogue import Catalogue
from .dataset import StickerDataset
from .optimizers import learning_rate_scale
from .pixel_codes import PixelCodes, to_unit

METRIC_SEED_SHIFT = 1000
TEST_STEP = 1_000_000_002
Drawer = Callable[[torch.Tensor], torch.Tensor]
log = logging.getLogger(__name__)


@dataclass
class MetricTrainer:
    """Trains on renderings of every pair, part of them drawn from their codes, all with noise and blur."""

    dataset: StickerDataset
    codes: PixelCodes
    recipe: dict

    def train(self) -> PromptAccuracy:
        numbers = self.recipe["metric"]
        torch.manual_seed(self.recipe["seed"])
        catalogue = self.dataset.catalogue
        network = PromptClassifier(len(catalogue.subjects), len(catalogue.backgrounds), numbers["width"]).train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=numbers["lr"], weight_decay=0.01)
        for step in range(numbers["steps"]):
            for group in optimizer.param_groups:
                scale = learning_rate_scale(step, numbers["steps"], numbers["steps"], numbers["warmup_steps"])
                group["lr"] = numbers["lr"] * scale
            loss = self._loss(network, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 99:
                log.info("metric step %d: loss %.3f", step + 1, loss.item())
        return PromptAccuracy(network, caption_forms(catalogue))

    def _loss(self, network: PromptClassifier, step: int) -> torch.Tensor:
        images, labels = self.batch(step)
        logits = network(images)
        return sum(F.cross_entropy(a, labels[:, i], label_smoothing=0.05) for i, a in enumerate(logits))

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures (n, 3, 64, 64) and labels (n, 2). The judge sees every pair: it must know held-out ones too."""
        seed = self.recipe["seed"] + METRIC_SEED_SHIFT
        rows = range(self.recipe["metric"]["batch"])
        samples = [self.dataset.sample(seed, step, row, held_out=None) for row in rows]
        pictures = np.stack([sample.picture for sample in samples])
        images = F.avg_pool2d(to_unit(pictures), 2)
        rng = np.random.default_rng((seed, step))
        coded = torch.from_numpy(rng.random(len(rows)) < self.recipe["metric"]["reconstructed_share"])
        if coded.any():
            images[coded] = self.codes.decode(self.codes.encode(pictures[coded.numpy()]))
        labels = torch.tensor([(sample.subject, sample.background) for sample in samples])
        return degrade(images, rng), labels

    def test_all(self, judge: PromptAccuracy, draw: Drawer) -> dict[str, float]:
        """Shares of right verdicts on fresh pictures of held-out pairs: rendered, drawn from their codes, and drawn
        by the VQ decoder `draw`."""
        count = self.recipe["metric"]["test_pictures"]
        results: dict[str, float] = {"pictures": count}
        for kind, show in (("rendered", None), ("centroids", self.codes.decode), ("decoder", draw)):
            shares = self.test(judge, count, show)
            results[f"{kind} subjects"], results[f"{kind} backgrounds"] = (round(share, 4) for share in shares)
        return results

    def test(self, judge: PromptAccuracy, count: int, show: Drawer | None) -> tuple[float, float]:
        """Share of right subjects and backgrounds on `count` fresh pictures; `show` draws them from their tokens."""
        right = []
        for start in range(0, count, 50):
            rows = range(start, min(start + 50, count))
            samples = [self.dataset.sample(self.recipe["seed"], TEST_STEP, row, held_out=True) for row in rows]
            pictures = np.stack([sample.picture for sample in samples])
            images = to_unit(pictures) if show is None else show(self.codes.encode(pictures))
            subjects, backgrounds = torch.tensor([(s.subject, s.background) for s in samples]).T
            score = judge.score_labels(images, subjects, backgrounds)
            right.append(torch.stack([score.subject_right, score.background_right]).float())
        return tuple(torch.cat(right, 1).mean(1).tolist())


def degrade(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Adds noise of random strength to each picture and blurs half of the batches."""
    strength = torch.from_numpy(rng.random((len(images), 1, 1, 1))).float() * 0.08
    noise = torch.from_numpy(rng.standard_normal(images.shape, np.float32))
    images = images + strength * noise
    if rng.random() < 0.5:
        size = int(rng.choice([32, 40, 48]))
        small = F.interpolate(images, size=(size, size), mode="bilinear", antialias=True)
        images = F.interpolate(small, size=images.shape[-2:], mode="bilinear")
    return images


def caption_forms(catalogue: Catalogue) -> dict[str, list[list[str]]]:
    """Every form of every subject and background that captions use."""
    return {
        "subjects": [[s.name, *s.synonyms] for s in catalogue.subjects],
        "backgrounds": [[b.phrase, *b.variants] for b in catalogue.backgrounds],
    }


def save_judge(judge: PromptAccuracy, folder: Path, width: int, test: dict[str, float]) -> None:
    """Writes `model.safetensors` and `config.json` with the words and the test result."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in judge.network.state_dict().items()}, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes files that only their owner may read
    config = {"width": width, "test_on_held_out_pairs": test, **judge.vocabulary}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
