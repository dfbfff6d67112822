"""Checks of user input: one clear sentence saying what was got, what is allowed and, for names, the nearest one."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Iterable


def require_at_least(name: str, value: float, low: float) -> None:
    """Raise ValueError unless ``value`` is a finite number >= ``low``."""
    if not (_is_number(value) and value >= low):
        raise ValueError(f"{name} must be a number >= {low:g}, got {value!r}")


def require_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number > 0."""
    if not (_is_number(value) and value > 0):
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def require_between(name: str, value: float, low: float, high: float) -> None:
    """Raise ValueError unless ``value`` is a finite number in [low, high]."""
    if not (_is_number(value) and low <= value <= high):
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value!r}")


def require_integer(name: str, value: int, low: int) -> None:
    """Raise ValueError unless ``value`` is an integer >= ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}")


def require_switch(name: str, value: bool) -> None:
    """Raise ValueError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def require_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``allowed``; the message offers the nearest name."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}{nearest(value, allowed)}; known: {', '.join(allowed)}")


def construct(cls: type, knobs: dict, name: str | None = None):
    """``cls(**knobs)``, refusing unknown knobs with the nearest known name, and anything but true or false in a switch.

    Ranges and other types are checked by the class itself.
    """
    parameters = inspect.signature(cls.__init__).parameters
    known = sorted(set(parameters) - {"self"})
    for knob, value in knobs.items():
        if knob not in known:
            raise ValueError(
                f"{name or cls.__name__} has no knob {knob!r}{nearest(knob, known)}; it has: {', '.join(known)}"
            )
        if isinstance(parameters[knob].default, bool):
            require_switch(f"{knob} of {name or cls.__name__}", value)
    return cls(**knobs)


def nearest(value: object, allowed: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` or an empty string."""
    match = difflib.get_close_matches(str(value), list(allowed), n=1, cutoff=0.5)
    return f" (did you mean {match[0]!r}?)" if match else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
