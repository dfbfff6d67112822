"""Widgets of a part (drafter, relaxation, filter), read off its constructor and docstring; a new part needs none."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass

_NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_STEP = 0.01
_OPEN_FLOAT, _OPEN_INT = 1000.0, 4096  # largest value of a widget whose knob has no upper end
LEFT_OPEN = -1  # value of a number widget that stands for None


@dataclass(frozen=True)
class Knob:
    """One widget.

    Args:
        name: of the constructor argument.
        kind: "float", "int", "bool", "choice" or "text".
        default: value of the widget; an optional knob is -1 (numbers) or empty (texts) where it is left open.
        tooltip: what the docstring says about it.
        low, high: smallest and largest number.
        choices: of a "choice".
        optional: its constructor argument may be None.
    """

    name: str
    kind: str
    default: object
    tooltip: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    def value(self, given):
        """What the constructor gets for a value of the widget."""
        return None if self.optional and given in (LEFT_OPEN, "") else given


def knobs_of(cls: type, meanings: dict[str, str]) -> list[Knob]:
    """The widgets of a part.

    Args:
        cls: class of the part.
        meanings: what its docstring says about each constructor argument.

    Raises:
        TypeError: an argument no widget can hold, naming it.
    """
    parameters = [p for p in inspect.signature(cls.__init__).parameters.values() if p.name != "self"]
    return [_knob(cls, parameter, meanings.get(parameter.name, "")) for parameter in parameters]


def _knob(cls: type, parameter: inspect.Parameter, meaning: str) -> Knob:
    name, default = parameter.name, parameter.default
    optional = default is None
    kind = _kind(str(parameter.annotation) if optional else type(default).__name__)
    if kind == "text":
        choices = tuple(dict.fromkeys(re.findall(r'"([\w.-]+)"', meaning)))
        if default in choices and len(choices) > 1:
            return Knob(name, "choice", default, meaning, choices=choices)
        return Knob(name, "text", default or "", meaning, optional=optional)
    if kind in ("float", "int"):
        low, high = _range(meaning, kind)
        if optional:
            return Knob(name, kind, LEFT_OPEN, f"{meaning} (-1: left open)", LEFT_OPEN, high, optional=True)
        return Knob(name, kind, default, meaning, low, high)
    if kind == "bool" and not optional:
        return Knob(name, kind, default, meaning)
    raise TypeError(f"{cls.__name__}.{name}: no widget for {parameter}")


def _kind(type_name: str) -> str:
    """Kind of a widget by the name of a type, or by an annotation like ``float | None``."""
    for word, kind in (("bool", "bool"), ("float", "float"), ("int", "int"), ("str", "text")):
        if re.search(rf"\b{word}\b", type_name):
            return kind
    return type_name


def _range(meaning: str, kind: str) -> tuple[float, float]:
    """Ends of the allowed values, as stated: ``in [0, 1]``, ``in (0, 1]``, ``>= 0``, ``> 0``, ``1 to 4``."""
    step, open_end, number = (1, _OPEN_INT, int) if kind == "int" else (_STEP, _OPEN_FLOAT, float)
    low, high = -open_end, open_end
    if interval := re.search(rf"in ([\[(]){_NUMBER}, (?:{_NUMBER}|inf)([\])])", meaning):
        left, first, last, right = interval.groups()
        low = float(first) + (step if left == "(" else 0)
        high = open_end if last is None else float(last) - (step if right == ")" else 0)
    elif span := kind == "int" and re.search(r"\b(\d+) to (\d+)\b", meaning):
        low, high = map(int, span.groups())
    elif at_least := re.search(rf"(>=?) {_NUMBER}", meaning):
        low = float(at_least.group(2)) + (0 if at_least.group(1) == ">=" else step)
    return number(math.ceil(low) if kind == "int" else low), number(high)
