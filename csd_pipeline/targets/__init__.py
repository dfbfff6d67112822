"""Target models: one adapter per family, found by the class of the model."""

from .base import Grid, PromptBatch, TargetAdapter, TargetSession

_ADAPTERS = {"JanusForConditionalGeneration": ("janus", "JanusAdapter"), "ToyTarget": ("toy", "ToyAdapter")}


def adapter_for(model) -> TargetAdapter:
    """The adapter of a target model.

    Raises:
        ValueError: no adapter for this class of model.
    """
    import importlib

    name = type(model).__name__
    if name not in _ADAPTERS:
        raise ValueError(f"no target adapter for {name}; supported: {', '.join(sorted(_ADAPTERS))}")
    module, adapter = _ADAPTERS[name]
    return getattr(importlib.import_module(f".{module}", __name__), adapter)(model)


__all__ = ["Grid", "PromptBatch", "TargetAdapter", "TargetSession", "adapter_for"]
