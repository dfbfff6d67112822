"""Every registered drafter, relaxation and filter as the description of a node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from csd_pipeline.alignment import FILTERS
from csd_pipeline.cli.rules import describe_registries
from csd_pipeline.drafters import DRAFTERS
from csd_pipeline.relaxation import RELAXATIONS

from .knobs import Knob, knobs_of

_ID = {"drafters": "CSD{}Drafter", "relaxations": "CSDRelaxation{}", "filters": "CSDFilter{}"}
_TITLE = {"drafters": "{} drafter", "relaxations": "Relaxation: {}", "filters": "Filter: {}"}


@dataclass(frozen=True)
class Part:
    """A part and the node made for it.

    Args:
        kind: "drafters", "relaxations" or "filters".
        name: registry name.
        cls: its class.
        summary: first paragraph of its docstring.
        source: paper.
        knobs: widgets.
    """

    kind: str
    name: str
    cls: type
    summary: str
    source: str
    knobs: tuple[Knob, ...]

    @property
    def node_id(self) -> str:
        return _ID[self.kind].format(camel_case(self.name))

    @property
    def title(self) -> str:
        name = self.name.upper() if len(self.name) <= 2 else self.name.replace("_", " ").replace("-", " ")
        return _TITLE[self.kind].format(name if self.kind != "drafters" else name.capitalize())

    def build(self, **values):
        """The part with the values of its widgets. Raises ValueError for values its class refuses."""
        return self.cls(**{knob.name: knob.value(values[knob.name]) for knob in self.knobs if knob.name in values})


@cache
def parts() -> tuple[Part, ...]:
    """All registered parts, by kind, in the order they are registered."""
    registries = {"drafters": DRAFTERS, "relaxations": RELAXATIONS, "filters": FILTERS}
    table = describe_registries()
    return tuple(
        _part(kind, name, cls, table[kind][name])
        for kind, registry in registries.items()
        for name, cls in registry.items()
    )


def parts_of(kind: str) -> list[Part]:
    """The parts of one kind."""
    return [part for part in parts() if part.kind == kind]


def camel_case(name: str) -> str:
    """``entropy`` -> ``Entropy``, ``csd_block`` -> ``CsdBlock``, ``tv`` -> ``TV``."""
    return "".join(word.upper() if len(word) <= 2 else word.capitalize() for word in re.split(r"[_-]", name))


def _part(kind: str, name: str, cls: type, facts: dict) -> Part:
    meanings = {knob: entry["meaning"] for knob, entry in facts["knobs"].items()}
    return Part(kind, name, cls, facts["summary"], facts["source"], tuple(knobs_of(cls, meanings)))
