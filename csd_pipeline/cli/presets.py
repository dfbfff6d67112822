"""`csd presets`: the named settings."""

from __future__ import annotations

import json

import click

from csd_pipeline.presets import preset_names, read_preset

from .parts import knob_text


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def presets(name: str | None, as_json: bool) -> None:
    """List the named settings, or only NAME: what each is for, where it comes from and what it sets."""
    found = {key: read_preset(key) for key in ([name] if name else preset_names())}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for key, preset in found.items():
        click.echo(click.style(key, bold=True))
        click.echo(f"  {preset['description']}")
        click.echo(f"  source:     {preset['source']}")
        click.echo(f"  drafter:    {knob_text(preset['drafter'])}")
        click.echo(f"  relaxation: {knob_text(preset['relaxation'])}")
        click.echo(f"  filter:     {knob_text(preset['alignment_filter'])}")
        if preset["call"]:
            click.echo("  sampling:   " + ", ".join(f"{k} {v}" for k, v in preset["call"].items()))
