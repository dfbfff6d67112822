"""The parts of a method from the command line: a preset or the model's own parts, changed knob by knob."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass

import click

from csd_pipeline.checks import construct, require_choice

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class PartOptions:
    """What the options say about the parts; None or empty leaves a part as it is."""

    preset: str | None = None
    drafter: str | None = None
    window: int | str | None = None
    redraw: str | None = None
    init: str | None = None
    draft: tuple[str, ...] = ()
    relaxation: str | None = None
    relax: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


class WindowOption(click.ParamType):
    """A number, or the word auto."""

    name = "window"

    def convert(self, value, param, ctx):
        if value == "auto" or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor the word auto", param, ctx)


def part_options(command):
    """The options of :class:`PartOptions`, handed to the command as one argument ``parts``."""

    @functools.wraps(command)
    def gather(**arguments):
        names = PartOptions.__dataclass_fields__
        return command(parts=PartOptions(**{name: arguments.pop(name) for name in names}), **arguments)

    options = (
        click.option("--preset", metavar="NAME", help="Method and numbers by name, see `csd presets`."),
        click.option("--drafter", metavar="NAME", help="Who proposes tokens, see `csd rules`."),
        click.option("--window", type=WindowOption(), metavar="N|auto",
                     help="Tokens per forward, drafts included; 1: plain decoding; auto: the fastest, once tried."),
        click.option("--redraw", metavar="WORD", help="fresh, coupled, gumbel or auto."),
        click.option("--init", metavar="WORD", help="Drafts entering the window: uniform, left, above, mean, ..."),
        click.option("--draft", multiple=True, metavar="KNOB=VALUE", help="Any knob of the drafter; repeatable."),
        click.option("--relaxation", metavar="NAME", help="Acceptance rule, see `csd rules`."),
        click.option("--relax", multiple=True, metavar="KNOB=VALUE", help="A knob of the rule; repeatable."),
        click.option("--filter", "filters", multiple=True, metavar="NAME[:KNOB=VALUE,...]",
                     help="Where the rule may act, e.g. tv:delta=0.65; several combine; `none` removes it."),
    )  # fmt: skip
    for option in reversed(options):
        gather = option(gather)
    return gather


def choose_parts(options: PartOptions, base: dict) -> dict:
    """``{"drafter", "relaxation", "alignment_filter"}``: ``base`` with what the options change.

    Args:
        base: parts to start from, e.g. those of the loaded pipeline; entries may be None.

    Raises:
        ValueError: unknown name or knob (the nearest is offered), or a value out of range.
    """
    from csd_pipeline.drafters import DRAFTERS
    from csd_pipeline.relaxation import RELAXATIONS

    drafting = {name: getattr(options, name) for name in ("window", "redraw", "init")}
    drafting = {name: value for name, value in drafting.items() if value is not None}
    others = dict(_split_knob(text, "--draft") for text in options.draft)
    for name in drafting.keys() & others.keys():
        raise ValueError(f"{name} is given twice, by --{name} and by --draft {name}={others[name]}; leave one out")
    drafting |= others
    relaxing = dict(_split_knob(text, "--relax") for text in options.relax)
    return {
        "drafter": _changed("drafter", DRAFTERS, base["drafter"], options.drafter, drafting),
        "relaxation": _changed("relaxation", RELAXATIONS, base["relaxation"], options.relaxation, relaxing),
        "alignment_filter": _filter(options.filters) if options.filters else base["alignment_filter"],
    }


def _changed(kind: str, registry: dict, base, name: str | None, knobs: dict):
    """``base`` with some knobs changed; a part of another name starts from that part's own defaults."""
    from csd_pipeline.recipe import describe

    if name is None and not knobs:
        return base
    if name is None and base is None:
        name = next(iter(registry))
    if name is not None:
        require_choice(kind, name, registry)
    cls = registry[name] if name is not None else type(base)
    kept = {k: v for k, v in describe(base).items() if not k.startswith("_")} if type(base) is cls else {}
    name = name or next((n for n, c in registry.items() if c is cls), cls.__name__)
    return construct(cls, kept | _typed(cls, knobs), name)


def _filter(texts: tuple[str, ...]):
    """``a & b`` of ``NAME:KNOB=VALUE,...`` texts, or None for ``none``."""
    from csd_pipeline.alignment import FILTERS

    if texts == ("none",):
        return None
    filters = []
    for text in texts:
        name, _, rest = text.partition(":")
        require_choice("filter", name, (*FILTERS, "none") if len(texts) == 1 else FILTERS)
        knobs = dict(_split_knob(knob, f"--filter {name}") for knob in rest.split(",") if knob)
        filters.append(construct(FILTERS[name], _typed(FILTERS[name], knobs), name))
    return functools.reduce(lambda a, b: a & b, filters)


def _split_knob(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{option} takes KNOB=VALUE, got {text!r}")
    return name.strip(), value.strip()


def _typed(cls: type, knobs: dict) -> dict:
    """Texts as the type of the knob's default; unknown knobs stay, :func:`construct` refuses them."""
    parameters = inspect.signature(cls.__init__).parameters
    return {k: _value(k, v, parameters[k].default) if k in parameters else v for k, v in knobs.items()}


def _value(knob: str, text, default):
    if not isinstance(text, str) or isinstance(default, str):
        return text
    if isinstance(default, bool):
        require_choice(knob, text.lower(), _WORDS)
        return _WORDS[text.lower()]
    if text == "auto":
        return text  # a word some numbers may be; the class refuses it for the others
    try:
        return int(text) if isinstance(default, int) else float(text)
    except ValueError:
        raise ValueError(f"{knob} must be a number like {default}, got {text!r}") from None


def knob_text(part: dict | None) -> str:
    """``jacobi (window 32, redraw gumbel)`` of a part as presets and recipes write it."""
    if part is None:
        return "none"
    if "parts" in part:
        return " & ".join(knob_text(entry) for entry in part["parts"])
    name = part.get("name", part.get("_class_name"))
    knobs = ", ".join(f"{k} {v}" for k, v in part.items() if k not in ("name", "_class_name"))
    return f"{name} ({knobs})" if knobs else name
