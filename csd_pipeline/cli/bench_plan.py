"""What a `csd bench` call has to compare and where its results go, checked before a model is loaded."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import click

from .files import write_whole


@dataclass(frozen=True)
class Plan:
    """What to compare.

    Args:
        model: name, folder or hub id.
        arms: :class:`~csd_pipeline.evaluation.arms.Arm` objects, plain decoding first.
        arm_texts, windows: what they were made from.
        prompts: prompt i is drawn with ``seed + i``.
        threads: thread counts, measured one after the other.
        quick: end with a word of advice.
    """

    model: str
    arms: list
    arm_texts: tuple[str, ...]
    windows: tuple[int, ...]
    prompts: list[str]
    seed: int
    threads: tuple[int, ...]
    quick: bool


@dataclass(frozen=True)
class Outputs:
    """Files to write; None where none was asked for."""

    json_file: Path | None
    report_file: Path | None
    overwrite: bool

    @classmethod
    def of(cls, json_file: str | None, report_file: str | None, overwrite: bool) -> Outputs:
        """From the options; refused now, so that results are not lost at the end.

        Raises:
            ValueError: no file in a folder that exists.
            ImportError: a report without matplotlib.
        """
        if report_file is not None and importlib.util.find_spec("matplotlib") is None:
            raise ImportError("--report needs matplotlib; install it with: pip install matplotlib")
        return cls(_checked("--json", json_file), _checked("--report", report_file), overwrite)

    def write(self, path: Path, content: str) -> None:
        click.echo(f"wrote {write_whole(path, content.encode(), self.overwrite)}")


def _checked(option: str, name: str | None) -> Path | None:
    if name is None:
        return None
    path = Path(name).expanduser()
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"{option} {name}: give a file in a folder that exists")
    return path
