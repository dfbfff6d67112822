"""What a published layout must tell: whether a path has it, and which stored tensor goes where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from .split_files import SplitFiles

# where a stored tensor goes: its names in the target, each with what is done to the tensor on the way (None: nothing)
Destinations = list[tuple[str, Callable[[Tensor], Tensor] | None]]


@dataclass(frozen=True)
class Extra:
    """Files a checkpoint may need beside itself.

    Args:
        vq: file or folder of the picture codes' encoder and decoder.
        text_encoder: folder of the T5 encoder, with its tokenizer.
        tokenizer: folder of the text tokenizer.
    """

    vq: Path | None = None
    text_encoder: Path | None = None
    tokenizer: Path | None = None


@dataclass(frozen=True)
class Piece:
    """Weight files of one part of a target.

    Args:
        files: in the order they are read.
        translate: stored name -> destinations; none: left out on purpose.
    """

    files: list[Path | SplitFiles]
    translate: Callable[[str], Destinations]


@dataclass(frozen=True)
class OpenCheckpoint:
    """A recognised checkpoint, described but not read.

    Args:
        layout: what it is, in words.
        place: where it is.
        build: makes the target, without weights if called so that parameters get no storage.
        pieces: where its tensors are; an earlier piece wins where two have the same one.
        load_tokenizer: reads the tokenizer; None where prompts are no text.
        lacks: what is missing beside it and the command that gives it; None where nothing is.
    """

    layout: str
    place: Path
    build: Callable[[], nn.Module]
    pieces: list[Piece]
    load_tokenizer: Callable[[], object | None]
    lacks: str | None = None


class Layout(ABC):
    """One way of publishing a checkpoint.

    Attributes:
        title: what it is, in words.
    """

    title: str

    @abstractmethod
    def recognises(self, place: Path, config: dict) -> bool:
        """True if ``place`` (a folder, or a file) has this layout; ``config`` is its config.json or empty."""

    @abstractmethod
    def open(self, place: Path, extra: Extra) -> OpenCheckpoint:
        """Describe the checkpoint; reads configs and file headers only.

        Raises:
            IncompleteCheckpoint: a file missing or broken.
        """


def command(place: Path, options: str) -> str:
    """The line that converts ``place`` together with the files it lacks."""
    return f"run: csd convert {place} OUT {options}"
