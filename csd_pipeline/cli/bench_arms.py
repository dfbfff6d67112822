"""Arms from texts: the words are the options of `csd generate` without their dashes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from csd_pipeline.checks import nearest, require_choice
from csd_pipeline.presets import build_parts, preset_names, read_preset

from .parts import PartOptions, choose_parts

DEFAULT_ARMS = (
    "relaxation=exact redraw=fresh label=exact-fresh",
    "relaxation=exact redraw=coupled label=exact-coupled",
    "relaxation=exact redraw=gumbel label=exact-gumbel",
    "csd-janus-pro-7b-quality label=csd-paper",
    "csd-janus-pro-7b-quality loop=naive window=16 label=csd-paper-naive",
    "csd-coupled",
    "balanced",
)
QUICK_ARMS = ("relaxation=exact redraw=gumbel label=exact-gumbel", "balanced")


@dataclass(frozen=True)
class ArmText:
    """What the words of an arm say."""

    parts: PartOptions = field(default_factory=PartOptions)
    label: str | None = None
    loop: str = "csd"


def build_arms(texts: tuple[str, ...], windows: tuple[int, ...]) -> list:
    """Plain decoding twice (same and other seeds), then every arm at every window it does not choose itself.

    Args:
        texts: e.g. ``"entropy:lam=0.5 filter=tv:delta=0.65 window=16 redraw=coupled"``. The first word may be a preset
            or a relaxation with its knobs, all others are ``OPTION=VALUE`` with the options of `csd generate`; besides,
            ``label=NAME`` is its name in tables, ``loop=naive`` runs it in the loop that imitates released ones,
            ``loop=compiled`` compiles it. An arm without preset starts from coupled Jacobi drafts and the exact rule.
        windows: for arms that do not say ``window=``.

    Raises:
        ValueError: an unknown word, name or knob (the nearest is offered), a value out of range, two arms of one name.
    """
    from csd_pipeline.evaluation.arms import plain_arms

    parsed = [(text, parse_arm(text)) for text in texts]
    arms = plain_arms(compiled=any(arm.loop == "compiled" for _, arm in parsed))
    for text, arm in parsed:
        chosen = windows if arm.parts.window is None else (arm.parts.window,)
        arms += [_build(arm, window, text) for window in chosen]
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two arms are called {name!r}; give one of them label=NAME")
    return arms


def parse_arm(text: str) -> ArmText:
    """The words of an arm; names and values are checked when its parts are built."""
    words, options, own = text.split(), {}, {}
    if not words:
        raise ValueError("--arm: got an empty arm; write for example --arm balanced")
    if "=" not in words[0].partition(":")[0]:
        options = _first_word(words.pop(0))
    for word in words:
        key, equals, value = word.partition("=")
        known = [*_options(), "label", "loop"]
        if not equals or not value or key not in known:
            raise ValueError(
                f"--arm {text!r}: {word!r}{nearest(key, known)} is no OPTION=VALUE; known: {', '.join(known)}"
            )
        if key in ("label", "loop"):
            own[key] = value
        elif key == "filter":
            options["filters"] = (*options.get("filters", ()), value)
        elif key == "draft":
            options["draft"] = (*options.get("draft", ()), *value.split(","))
        elif key in ("relaxation", "relax"):
            options |= _relaxing(key, value, options)
        else:
            options[key] = int(value) if value.isdigit() else value
    return ArmText(PartOptions(**options), **own)


def _options() -> list[str]:
    return ["filter" if name == "filters" else name for name in PartOptions.__dataclass_fields__]


def _first_word(word: str) -> dict:
    """A preset, or a relaxation with or without knobs."""
    from csd_pipeline.relaxation import RELAXATIONS

    name, _, knobs = word.partition(":")
    require_choice("preset or relaxation", name, [*preset_names(), *RELAXATIONS])
    if name in preset_names():
        return {"preset": name} | ({"relax": tuple(knobs.split(","))} if knobs else {})
    return _relaxing("relaxation", word, {})


def _relaxing(key: str, value: str, options: dict) -> dict:
    """``relaxation=NAME[:KNOB=VALUE,...]`` or ``relax=KNOB=VALUE,...``, added to the knobs so far."""
    name, _, knobs = value.partition(":") if key == "relaxation" else (None, None, value)
    relax = (*options.get("relax", ()), *(knob for knob in knobs.split(",") if knob))
    return {"relax": relax} | ({"relaxation": name} if name else {})


def _build(arm: ArmText, window, text: str):
    from csd_pipeline.drafters import JacobiDrafter
    from csd_pipeline.evaluation.arms import Arm
    from csd_pipeline.relaxation import Exact

    base = {"drafter": JacobiDrafter(), "relaxation": Exact(), "alignment_filter": None}
    if arm.parts.preset is not None:
        base = build_parts(read_preset(arm.parts.preset))
    parts = choose_parts(replace(arm.parts, window=window), base)
    words = (word for word in text.split() if not word.startswith(("window=", "label=")))
    return Arm(f"{arm.label or ' '.join(words)} W={window}", parts, arm.loop)
