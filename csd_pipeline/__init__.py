"""Fast autoregressive text-to-image: speculative decoding with a guaranteed exact mode, as a diffusers pipeline.

Public names load on first use, so that ``import csd_pipeline`` (and ``csd --help``) costs nothing.
"""

from __future__ import annotations

import importlib

from ._register import when_imported

__version__ = "0.1.0"

_PUBLIC = {
    "CSDAutoregressivePipeline": "pipeline",
    "CSDPipelineOutput": "pipeline_output",
    "AlignmentFilter": "alignment",
    "AnnealingFilter": "alignment",
    "CombinedFilter": "alignment",
    "DriftBudget": "alignment",
    "ImageBudget": "alignment",
    "KLFilter": "alignment",
    "TVFilter": "alignment",
    "Drafter": "drafters",
    "JacobiDrafter": "drafters",
    "AdditionRelaxation": "relaxation",
    "AmplifyRelaxation": "relaxation",
    "AnnealedRelaxation": "relaxation",
    "BlockVerification": "relaxation",
    "EnsembleRelaxation": "relaxation",
    "EntropyRelaxation": "relaxation",
    "Exact": "relaxation",
    "GroupedRelaxation": "relaxation",
    "NeighbourRelaxation": "relaxation",
    "PhraseRelaxation": "relaxation",
    "Relaxation": "relaxation",
    "SemanticRelaxation": "relaxation",
    "ChameleonWithPixels": "targets.chameleon_pixels",
    "LlamaGenTarget": "targets.llamagen_network",
    "LuminaWithPixels": "targets.chameleon_pixels",
    "ToyTarget": "targets.toy",
    "Trace": "decoding",
}
# diffusers looks up the loading methods of a component by base-class names in the namespace of its library
_BASES = {"ModelMixin": "diffusers", "SchedulerMixin": "diffusers", "PreTrainedModel": "transformers"}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str):
    if name in _PUBLIC:
        value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    elif name in _BASES:
        value = getattr(importlib.import_module(_BASES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _register_with_diffusers(diffusers) -> None:
    """Let ``DiffusionPipeline.from_pretrained`` resolve our class name after ``import csd_pipeline``.

    The name is looked up as an attribute of the module ``diffusers`` (of ``diffusers.pipelines`` by diffusers' shared
    pipeline tests). A property keeps it lazy: this runs while diffusers is being imported, possibly from inside our
    own modules, when the pipeline can not be imported yet.
    """
    name = "CSDAutoregressivePipeline"
    if not hasattr(type(diffusers), name):
        lazy = property(lambda module: __getattr__(name))
        diffusers.__class__ = type(type(diffusers).__name__, (type(diffusers),), {name: lazy})


for _module in ("diffusers", "diffusers.pipelines"):
    when_imported(_module, _register_with_diffusers)
