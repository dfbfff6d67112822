"""Every class a saved pipeline folder may name, and the base classes diffusers looks up beside them."""

from diffusers import ModelMixin, SchedulerMixin  # noqa: F401  looked up here by diffusers' loader
from transformers import PreTrainedModel  # noqa: F401

from .alignment import CombinedFilter, DriftBudget, KLFilter, TVFilter
from .drafters import JacobiDrafter
from .relaxation import EntropyRelaxation, Exact
from .targets.toy import ToyTarget

SAVED_CLASSES = (CombinedFilter, DriftBudget, KLFilter, TVFilter, JacobiDrafter, EntropyRelaxation, Exact, ToyTarget)

for _class in SAVED_CLASSES:
    _class.__module__ = "csd_pipeline"  # folders say ["csd_pipeline", "JacobiDrafter"], whatever file it lives in
