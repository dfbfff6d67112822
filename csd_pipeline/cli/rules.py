"""`csd rules`: every part a method is made of."""

from __future__ import annotations

import inspect
import json
import re
import textwrap

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def rules(as_json: bool) -> None:
    """List drafters, relaxations and alignment filters: class, source, knobs and their ranges, exact or not."""
    table = describe_registries()
    if as_json:
        click.echo(json.dumps(table, indent=2))
        return
    for kind, parts in table.items():
        click.echo(click.style(kind, bold=True))
        for name, part in parts.items():
            click.echo(f"  {name:<14}{part['summary']}")
            click.echo(f"  {'':<14}{part['class']}, {part['source']}; exact: {part['exact']}")
            if part["departures"]:
                text, indent = "departs: " + part["departures"], " " * 12
                click.echo(
                    textwrap.fill(text, 116, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
                )
            for knob, facts in part["knobs"].items():
                text = f"{knob} = {facts['default']}".ljust(24) + facts["meaning"]
                click.echo(click.wrap_text(text, 116, " " * 14, " " * 38))
        click.echo()


def describe_registries() -> dict[str, dict[str, dict]]:
    """``{kind: {registry name: {class, source, departures, summary, knobs, exact}}}``."""
    from csd_pipeline.alignment import FILTERS
    from csd_pipeline.drafters import DRAFTERS
    from csd_pipeline.relaxation import RELAXATIONS

    exact = {
        "drafters": lambda cls: "yes, with the relaxation exact and no lossy record",
        "relaxations": lambda cls: "yes" if cls().exact else "no, drift is measured",
        "filters": lambda cls: "where its gate is 0",
    }
    registries = {"drafters": DRAFTERS, "relaxations": RELAXATIONS, "filters": FILTERS}
    return {
        kind: {name: _describe(cls) | {"exact": exact[kind](cls)} for name, cls in registry.items()}
        for kind, registry in registries.items()
    }


def _describe(cls: type) -> dict:
    parameters = [p for p in inspect.signature(cls.__init__).parameters.values() if p.name != "self"]
    return {
        "class": cls.__name__,
        "source": cls.source or "this project",
        "departures": getattr(cls, "departures", ""),
        "summary": (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ").replace("``", ""),
        "knobs": {p.name: {"default": p.default, "meaning": _meanings(cls).get(p.name, "")} for p in parameters},
    }


def _meanings(cls: type) -> dict[str, str]:
    """What the ``Args`` section of a docstring says about each knob, its range included."""
    flags = re.MULTILINE | re.DOTALL
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(cls) or "", flags)
    entries = re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section.group(1) if section else "", flags)
    return {name: " ".join(text.replace("``", "").split()) for name, text in entries}
