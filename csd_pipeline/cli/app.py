"""The root command: finds the others by name, imports them only when they are called, and words their errors."""

from __future__ import annotations

import importlib
import sys

import click

from csd_pipeline import __version__
from csd_pipeline.checks import nearest

from .errors import tidy_errors

# name -> (module, attribute, line of the overview)
COMMANDS = {
    "generate": ("csd_pipeline.cli.generate", "generate", "Draw pictures from prompts, or the same picture again."),
    "convert": ("csd_pipeline.cli.convert", "convert", "Write any published checkpoint as a diffusers folder."),
    "info": ("csd_pipeline.cli.info", "info", "What a model can draw and what it needs, without loading it."),
    "presets": ("csd_pipeline.cli.presets", "presets", "List the named settings."),
    "rules": ("csd_pipeline.cli.rules", "rules", "List drafters, relaxations and filters with their knobs."),
    "doctor": ("csd_pipeline.cli.doctor", "doctor", "Check the installation; says what mends it."),
    "bench": ("csd_pipeline.cli.bench", "bench", "Measure speed, drift and quality side by side."),
    "phrases": ("csd_pipeline.cli.phrases", "phrases", "Collect the phrases of the relaxation of that name."),
    "train": ("csd_pipeline.cli.train", "train", "Train the models that ship with this package."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command = getattr(importlib.import_module(module), attribute)
        if all(parameter.name != "debug" for parameter in command.params):
            command.params.append(_debug_option())
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(
                f"no command {args[0]!r}{nearest(args[0], COMMANDS)}; commands: {', '.join(COMMANDS)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context):
        with tidy_errors(ctx):
            return super().invoke(ctx)


def _debug_option() -> click.Option:
    def remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        ctx.find_root().meta["debug"] = value or ctx.find_root().meta.get("debug", False)

    text = "Show the whole traceback of an error."
    return click.Option(["--debug"], is_flag=True, expose_value=False, is_eager=True, callback=remember, help=text)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, params=[_debug_option()])
@click.version_option(__version__, message="csd %(version)s")
def app() -> None:
    """Fast text-to-image with speculative decoding: the picture of plain decoding in fewer steps, or a faster one
    whose distance from it is measured.

    Start with: csd generate "a red apple on white"
    """


def main() -> None:
    """Entry point of `csd`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter of the prompt is no reason to stop
    app(prog_name="csd")
