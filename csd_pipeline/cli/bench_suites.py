"""Which options of `csd bench` belong to which suite."""

from __future__ import annotations

import click
from click.core import ParameterSource

METHODS, GPU = "methods", "gpu"
_OF_GPU = ("shapes", "device", "json_file", "overwrite")
_NOT_OF_METHODS = ("shapes",)


def refuse_foreign_options(ctx: click.Context, suite: str) -> None:
    """Raise click.UsageError for an option the call gave that the suite does not read."""
    flags = {option.name: option.opts[0] for option in ctx.command.params}
    own = [name for name in flags if (name in _OF_GPU if suite == GPU else name not in _NOT_OF_METHODS)]
    for name, flag in flags.items():
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if name != "suite" and given and name not in own:
            listed = ", ".join(flags[entry] for entry in own if entry != "suite")
            raise click.UsageError(f"{flag} does not belong to --suite {suite}, which takes {listed}")
