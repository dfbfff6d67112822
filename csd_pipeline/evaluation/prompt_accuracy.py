"""Prompt accuracy: does a picture show the subject and the background its caption asks for?

The judge is our own small classifier, trained on renderings of the embedded model's catalogue. It knows nothing
outside that catalogue, and its numbers are neither CLIP scores nor FID.
"""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

PACKAGED = resources.files("csd_pipeline").joinpath("models", "prompt_accuracy")
INPUT_SIZE = 64


@dataclass(frozen=True)
class PromptScore:
    """Per picture: whether subject and background were recognised as asked (bool tensors of shape (n,))."""

    subject_right: torch.Tensor
    background_right: torch.Tensor


class PromptClassifier(nn.Module):
    """Four blocks of two convolutions each, then one linear head for the subject and one for the background."""

    def __init__(self, subjects: int, backgrounds: int, width: int = 32):
        super().__init__()
        widths = (3, width, 2 * width, 3 * width, 4 * width)
        self.blocks = nn.Sequential(*(_block(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True)))
        self.subject_head = nn.Linear(widths[-1], subjects)
        self.background_head = nn.Linear(widths[-1], backgrounds)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) in -1..1, any size from 64 px -> (n, 128)."""
        small = F.adaptive_avg_pool2d(images, INPUT_SIZE) if images.shape[-1] != INPUT_SIZE else images
        maps = self.blocks(small)
        return maps.mean((2, 3)) + 0.5 * maps.amax((2, 3))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, subjects) and (n, backgrounds)."""
        features = self.features(images)
        return self.subject_head(features), self.background_head(features)


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels, stride in ((inputs, 2), (outputs, 1)):
        conv = nn.Conv2d(channels, outputs, 3, stride=stride, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class PromptAccuracy:
    """The classifier with the words it understands.

    `vocabulary` is {"subjects": [[name, synonym, ...], ...], "backgrounds": [[phrase, variant, ...], ...]}.
    """

    def __init__(self, network: PromptClassifier, vocabulary: dict[str, list[list[str]]]):
        self.network, self.vocabulary = network.eval(), vocabulary

    @classmethod
    def load(cls, folder: Path | None = None) -> "PromptAccuracy":
        """The packaged judge, or one from a folder with `config.json` and `model.safetensors`."""
        folder = Path(str(PACKAGED)) if folder is None else Path(folder)
        if not (folder / "model.safetensors").exists():
            raise FileNotFoundError(f"no prompt-accuracy weights in {folder}; train them with `csd train embedded`")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        vocabulary = {key: config[key] for key in ("subjects", "backgrounds")}
        network = PromptClassifier(len(config["subjects"]), len(config["backgrounds"]), config["width"])
        network.load_state_dict(load_file(folder / "model.safetensors"))
        return cls(network, vocabulary)

    def labels(self, caption: str) -> tuple[int, int | None]:
        """Subject and background of a caption; background None when the caption names none."""
        words = f" {caption.lower().replace(',', ' , ')} ".replace("  ", " ")
        background, phrase = _longest_match(words, self.vocabulary["backgrounds"])
        subject, _ = _longest_match(words.replace(f" {phrase} ", " ") if phrase else words, self.vocabulary["subjects"])
        if subject is None:
            known = ", ".join(names[0] for names in self.vocabulary["subjects"])
            raise ValueError(f"caption {caption!r} names no subject that prompt accuracy knows. Known: {known}")
        return subject, background

    @torch.no_grad()
    def score(self, images: torch.Tensor, captions: list[str]) -> PromptScore:
        """Judges (n, 3, h, w) pictures in -1..1 against their captions; an unnamed background counts as right."""
        if len(images) != len(captions):
            raise ValueError(f"got {len(images)} images for {len(captions)} captions; they must pair up")
        labels = [self.labels(caption) for caption in captions]
        backgrounds = torch.tensor([-1 if background is None else background for _, background in labels])
        return self.score_labels(images, torch.tensor([subject for subject, _ in labels]), backgrounds)

    @torch.no_grad()
    def score_labels(self, images: torch.Tensor, subjects: torch.Tensor, backgrounds: torch.Tensor) -> PromptScore:
        """The same with numeric labels of shape (n,); background -1 means "any"."""
        subject_logits, background_logits = self.network(images.float())
        background_right = (background_logits.argmax(1) == backgrounds) | (backgrounds < 0)
        return PromptScore(subject_logits.argmax(1) == subjects, background_right)


def _longest_match(words: str, table: list[list[str]]) -> tuple[int | None, str | None]:
    """Number of the entry with the longest form contained in `words`, and that form."""
    hits = [(len(form), number, form) for number, forms in enumerate(table) for form in forms if f" {form} " in words]
    if not hits:
        return None, None
    _, number, form = max(hits)
    return number, form
