"""Alignment filters: where a relaxation may act, and how far."""

from csd_pipeline.checks import construct, require_choice

from .annealing import AnnealingFilter
from .base import AlignmentFilter
from .combined import CombinedFilter
from .drift_budget import DriftBudget
from .image_budget import ImageBudget
from .kl import KLFilter
from .total_variation import TVFilter

FILTERS: dict[str, type[AlignmentFilter]] = {
    "tv": TVFilter,
    "kl": KLFilter,
    "budget": DriftBudget,
    "anneal": AnnealingFilter,
    "image-budget": ImageBudget,
}


def build_filter(part: dict) -> AlignmentFilter:
    """A filter from ``{"_class_name": ..., option: value}``.

    Raises:
        ValueError: no such dict, or a filter or option that does not exist.
    """
    if not isinstance(part, dict):
        raise ValueError(f"an alignment filter must be an object with a _class_name, got {part!r}")
    classes = {cls.__name__: cls for cls in (*FILTERS.values(), CombinedFilter)}
    require_choice("alignment filter", part.get("_class_name", ""), classes)
    return construct(classes[part["_class_name"]], {k: v for k, v in part.items() if not k.startswith("_")})


__all__ = [
    "FILTERS",
    "AlignmentFilter",
    "AnnealingFilter",
    "CombinedFilter",
    "DriftBudget",
    "ImageBudget",
    "KLFilter",
    "TVFilter",
    "build_filter",
]
