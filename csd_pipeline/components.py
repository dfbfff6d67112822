"""Every class a saved folder may name, the base classes diffusers looks up beside them, and the three parts.

Targets of one family come when they are asked for: their modules import what no other family needs.
"""

import importlib

from diffusers import ModelMixin, SchedulerMixin  # noqa: F401  looked up here by diffusers' loader
from transformers import PreTrainedModel  # noqa: F401

from .alignment import FILTERS, AlignmentFilter, CombinedFilter
from .drafters import DRAFTERS, Drafter, JacobiDrafter
from .names import PARTS
from .relaxation import RELAXATIONS, Exact, Relaxation
from .targets.toy import ToyTarget

SAVED_CLASSES = (*DRAFTERS.values(), *RELAXATIONS.values(), *FILTERS.values(), CombinedFilter, ToyTarget)
_TARGETS = {
    "ChameleonWithPixels": "chameleon_pixels",
    "LuminaWithPixels": "chameleon_pixels",
    "LlamaGenTarget": "llamagen_network",
}
_KINDS = dict(zip(PARTS, (Drafter, Relaxation, AlignmentFilter), strict=True))

for _class in SAVED_CLASSES:
    _class.__module__ = "csd_pipeline"  # folders say ["csd_pipeline", "JacobiDrafter"], whatever file it lives in
    globals()[_class.__name__] = _class  # where diffusers' loader looks it up


def __getattr__(name: str):
    if name not in _TARGETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".targets.{_TARGETS[name]}", __package__), name)


def complete_parts(drafter, relaxation, alignment_filter) -> dict:
    """The parts of a run by name: no drafter is one token per forward, no relaxation is exact.

    Raises:
        ValueError: something that is no drafter, relaxation or alignment filter in its place.
    """
    parts = dict(zip(PARTS, (drafter, relaxation, alignment_filter), strict=True))
    for name, part in parts.items():
        if part is not None and not isinstance(part, _KINDS[name]):
            raise ValueError(f"{name} must be a {_KINDS[name].__name__} or None, got {part!r}")
    return parts | {"drafter": drafter or JacobiDrafter(window=1), "relaxation": relaxation or Exact()}
