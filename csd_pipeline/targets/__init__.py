"""Target models: one adapter per family, found by the class of the model."""

from .base import Grid, PromptBatch, TargetAdapter, TargetSession

_ADAPTERS = {
    "JanusForConditionalGeneration": ("janus", "JanusAdapter"),
    "ChameleonForConditionalGeneration": ("chameleon", "ChameleonAdapter"),
    "ChameleonWithPixels": ("chameleon", "ChameleonAdapter"),
    "Emu3ForConditionalGeneration": ("emu3", "Emu3Adapter"),
    "LlamaGenTarget": ("llamagen", "LlamaGenAdapter"),
    "LuminaWithPixels": ("lumina", "LuminaAdapter"),
    "ToyTarget": ("toy", "ToyAdapter"),
}


def adapter_for(model, size: tuple[int, int] | None = None) -> TargetAdapter:
    """The adapter of a target model, for pictures of ``size`` (height, width) pixels; None is its usual size.

    Raises:
        ValueError: no adapter for this class of model, or a size it can not draw.
    """
    import importlib

    name = type(model).__name__
    if name not in _ADAPTERS:
        raise ValueError(f"no target adapter for {name}; supported: {', '.join(sorted(_ADAPTERS))}")
    module, adapter = _ADAPTERS[name]
    return getattr(importlib.import_module(f".{module}", __name__), adapter)(model, size)


def full_precision_modules() -> list[str]:
    """Full names of the modules, of all families, that weights of few bits would spoil."""
    import importlib

    modules = dict(_ADAPTERS.values())
    adapters = [getattr(importlib.import_module(f".{module}", __name__), name) for module, name in modules.items()]
    return sorted({name for adapter in adapters for name in adapter.full_precision})


__all__ = ["Grid", "PromptBatch", "TargetAdapter", "TargetSession", "adapter_for", "full_precision_modules"]
