"""Which options of `csd bench` belong to which suite."""

from __future__ import annotations

import click
from click.core import ParameterSource

METHODS, BATCH, GPU = "methods", "batch", "gpu"
_OF_GPU = ("shapes", "device", "json_file", "overwrite")
_NOT_OF_METHODS = ("shapes", "batches")
_NOT_OF_BATCH = ("shapes", "arm_texts", "quick", "report_file")


def refuse_foreign_options(ctx: click.Context, suite: str) -> None:
    """Raise click.UsageError for an option the call gave that the suite does not read."""
    flags = {option.name: option.opts[0] for option in ctx.command.params}
    foreign = {METHODS: _NOT_OF_METHODS, BATCH: _NOT_OF_BATCH, GPU: [name for name in flags if name not in _OF_GPU]}
    own = [name for name in flags if name not in foreign[suite]]
    for name, flag in flags.items():
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if name != "suite" and given and name not in own:
            listed = ", ".join(flags[entry] for entry in own if entry != "suite")
            raise click.UsageError(f"{flag} does not belong to --suite {suite}, which takes {listed}")
