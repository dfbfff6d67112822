"""Weights cut for several devices: every file holds a part, or a copy, of every tensor, and they are read as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from csd_pipeline import weight_files
from csd_pipeline.weight_files import IncompleteCheckpoint


@dataclass(frozen=True)
class SplitFiles:
    """The files of one set of tensors.

    Args:
        files: one per device, in order.
        join: stored name and its part in every file -> the whole tensor; on the meta device as well.
    """

    files: tuple[Path, ...]
    join: Callable[[str, list[Tensor]], Tensor]

    def describe(self) -> dict[str, Tensor]:
        """As :func:`csd_pipeline.weight_files.describe`, of the whole tensors.

        Raises:
            IncompleteCheckpoint: also where a file lacks a tensor the others have, or has it in another shape.
        """
        described = [weight_files.describe(file) for file in self.files]
        names = dict.fromkeys(name for tensors in described for name in tensors)
        return {name: self.join(name, self._parts(name, described)) for name in names}

    def read(self) -> Iterator[tuple[str, Tensor]]:
        """The whole tensors one after the other; torch maps the parts into memory, they take none until then."""
        opened = [dict(weight_files.read(file)) for file in self.files]
        for name in opened[0]:
            yield name, self.join(name, [tensors[name] for tensors in opened])

    def _parts(self, name: str, described: list[dict[str, Tensor]]) -> list[Tensor]:
        having = next(file for file, tensors in zip(self.files, described, strict=True) if name in tensors)
        expected = described[self.files.index(having)][name].shape
        for file, tensors in zip(self.files, described, strict=True):
            if name not in tensors:
                raise IncompleteCheckpoint(
                    f"{file} has no part of tensor {name!r}, which {having.name} has; download both again"
                )
            if tensors[name].shape != expected:
                raise IncompleteCheckpoint(
                    f"{file}: the part of tensor {name!r} is {list(tensors[name].shape)}, in {having.name} it is "
                    f"{list(expected)}; files of different models do not go together"
                )
        return [tensors[name] for tensors in described]


def describe(weights: Path | SplitFiles) -> dict[str, Tensor]:
    """Name, shape and dtype of every tensor, on the meta device; nothing else is read.

    Raises:
        IncompleteCheckpoint: truncated, damaged, or files that do not go together.
    """
    return weights.describe() if isinstance(weights, SplitFiles) else weight_files.describe(weights)


def read(weights: Path | SplitFiles) -> Iterator[tuple[str, Tensor]]:
    """The tensors one after the other; one at a time is held in memory."""
    return weights.read() if isinstance(weights, SplitFiles) else weight_files.read(weights)
