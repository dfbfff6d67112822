"""`csd train`: the trainings of the models in this package."""

from __future__ import annotations

import importlib

import click

from .errors import tidy_errors

TRAININGS = {
    "embedded": ("csd_pipeline.training.embedded.__main__", "main", "The embedded text-to-image model and its judge."),
}


class TrainGroup(click.Group):
    """Imports a training when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TRAININGS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in TRAININGS:
            return None
        module, attribute, _ = TRAININGS[name]
        with tidy_errors(ctx):
            return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in TRAININGS.items()])


@click.group(cls=TrainGroup)
def train() -> None:
    """Train the models that ship with this package."""
