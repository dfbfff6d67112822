"""Is a checkpoint whole? Answered from file headers, before any weight is read or any device touched."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from .weight_files import IncompleteCheckpoint, describe, read_json, shards, stored_shapes

SUPPORTED_MODELS = ("janus", "chameleon", "emu3")  # model_type of config.json
OWN_MODELS = ("ToyTarget", "LlamaGenTarget")
_LUMINA = ("ChameleonXLLMXForConditionalGeneration", "LuminaWithPixels")
GGUF = (
    "a GGUF file holds the language model alone, without the heads and the decoder of picture codes; give the model's "
    "own folder (deepseek-community/Janus-Pro-1B), and quantization_config to make it small"
)
_VARIANT = re.compile(r"(?:model|diffusion_pytorch_model)\.(\w+)(?:-\d+-of-\d+)?\.safetensors$")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
# tensors that follow from the config, or that only training needs
_UNUSED = re.compile(r"(rotary_emb\.inv_freq|codebook_used|position_ids)$|(^|\.)loss\.")
# names in folders that older versions of transformers wrote; transformers maps them itself
_FORMER_NAMES = (
    (re.compile(r"^text_model\.model\."), "model.text_model."),
    (re.compile(r"^text_model\.lm_head\."), "lm_head."),
    (re.compile(r"^vqmodel\."), "model.vqmodel."),
)


def target_class(config: dict, source: Path | str) -> type[torch.nn.Module]:
    """The class of a target from the content of its config.json.

    Raises:
        IncompleteCheckpoint: this package has no adapter for it.
    """
    if config.get("_class_name") in OWN_MODELS:
        from . import components

        return getattr(components, config["_class_name"])
    check_model_type(config.get("model_type"), source)
    if config["model_type"] == "chameleon":
        from .targets import chameleon_pixels

        lumina = (config.get("architectures") or [""])[0] in _LUMINA
        return chameleon_pixels.LuminaWithPixels if lumina else chameleon_pixels.ChameleonWithPixels
    import transformers

    return getattr(transformers, f"{config['model_type'].capitalize()}ForConditionalGeneration")


def check_model_type(model_type: str | None, source: Path | str) -> None:
    """Raise IncompleteCheckpoint unless this package has an adapter for the ``model_type`` of a config.json."""
    if model_type not in SUPPORTED_MODELS:
        raise IncompleteCheckpoint(
            f"{source} holds a model of type {model_type!r}; supported types: {', '.join(SUPPORTED_MODELS)}, "
            "and the original layouts of Janus, Chameleon, Emu3 and LlamaGen"
        )


def check_folder(folder: Path) -> None:
    """Check the weights folder of a target: config, shards named by the index, shard lengths.

    Raises:
        IncompleteCheckpoint: naming the file.
    """
    if not (folder / "config.json").is_file():
        raise IncompleteCheckpoint(
            f"{folder} has no config.json; it belongs beside the weights of the target model" + _elsewhere(folder)
        )
    config = read_json(folder / "config.json")
    if config.get("_class_name") not in OWN_MODELS:
        check_model_type(config.get("model_type"), folder)
    for shard in shards(folder):
        describe(shard)


def check_variant(folder: Path, variant: str | None) -> None:
    """Raise IncompleteCheckpoint if all weights in ``folder`` are of a variant and none was asked for."""
    named = [_VARIANT.match(file.name) for file in shards(folder)]
    if variant is None and named and all(named):
        only = named[0][1]
        raise IncompleteCheckpoint(f"{folder} holds weights of the variant {only!r} only; give variant={only!r}")


def _elsewhere(folder: Path) -> str:
    """What else the folder holds: the checkpoint may lie deeper, or be a file of the language model alone."""
    deeper = [file.parent for pattern in ("*", "snapshots/*") for file in sorted(folder.glob(f"{pattern}/config.json"))]
    deeper += [file.parent for file in sorted(folder.glob("snapshots/*/model_index.json"))]
    if deeper:
        return f"; did you mean {deeper[0]}?"
    if list(folder.glob("*.gguf")):
        return f"; {GGUF}"
    return ""


def check_tokenizer(folder: Path) -> None:
    """Raise IncompleteCheckpoint unless ``folder`` holds a tokenizer whose JSON files are whole."""
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise IncompleteCheckpoint(f"{folder} has no tokenizer; one of {', '.join(_TOKENIZER_FILES)} belongs there")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            read_json(folder / name)


def check_model(model: torch.nn.Module, folder: Path) -> None:
    """Every tensor of a model, loaded or on the meta device, must be stored in ``folder``, in its shape, and no other.

    Shapes and tensors without a place are looked at only on the meta device: a loaded model may have been changed.

    Raises:
        IncompleteCheckpoint: with the number of missing, misshapen or unknown tensors and the first names.
    """
    stored, wanted = stored_shapes(folder), model.state_dict()
    if not any(key in stored for key in wanted):
        stored = {_former(key): shape for key, shape in stored.items()}
    missing = [key for key in wanted if key not in stored and not is_tied(model, key, stored)]
    unknown, wrong = [], []
    packed = getattr(model.config, "quantization_config", None)  # packed weights have names and shapes of their own
    if packed:
        modules = {key.rpartition(".")[0] for key in stored}
        missing = [key for key in missing if key.rpartition(".")[0] not in modules]
    elif next(model.parameters()).device.type == "meta":
        unknown = [key for key in stored if key not in wanted and not is_unused(key)]
        wrong = [(k, stored[k], tuple(t.shape)) for k, t in wanted.items() if stored.get(k, t.shape) != t.shape]
    refuse_mismatch(folder, type(model).__name__, len(wanted), missing, unknown, wrong)


def refuse_mismatch(
    place: Path,
    name: str,
    count: int,
    missing: list[str],
    unknown: list[str],
    wrong: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
) -> None:
    """Raise IncompleteCheckpoint if anything is missing, has no place, or has another shape than wanted.

    Args:
        place: folder or file the tensors are in.
        name: class of the model.
        count: number of its tensors.
        missing: names the model needs.
        unknown: stored names the model has no place for.
        wrong: name, stored shape and wanted shape.
    """
    extra = f"{len(unknown)} stored tensors have no place in {name}, first: {', '.join(unknown[:4])}"
    if missing:
        raise IncompleteCheckpoint(
            f"{place}: {len(missing)} of {count} tensors of {name} are missing, first: {', '.join(missing[:4])}"
            + (f"; {extra}" if unknown else "")
            + "; download the checkpoint again"
        )
    if unknown:
        raise IncompleteCheckpoint(f"{place}: {extra}; the weights belong to another config.json")
    if wrong:
        key, got, expected = wrong[0]
        raise IncompleteCheckpoint(
            f"{place}: {len(wrong)} tensors do not have the shape config.json asks for, first: {key} is {list(got)} "
            f"instead of {list(expected)}; the weights belong to another config.json"
        )


def check_loaded(model: torch.nn.Module) -> None:
    """Refuse a transformers model that was filled from an incomplete folder (the rest would be random numbers).

    A model without a local folder, or whose folder has gone since, is taken as it is.
    """
    folder = Path(str(getattr(model, "name_or_path", "") or "."))
    if not folder.name or not folder.is_dir() or getattr(model, "is_quantized", False):
        return
    try:
        shards(folder)
    except IncompleteCheckpoint:
        return
    check_model(model, folder)


def is_tied(model: torch.nn.Module, key: str, stored) -> bool:
    """True when a parameter shares its tensor with one that is stored (transformers keeps one copy of tied weights)."""
    tied = getattr(model, "_tied_weights_keys", None) or ()
    partners = [tied[key]] if isinstance(tied, dict) and key in tied else [name for name in tied if key in tied]
    configs = (model.config, getattr(model.config, "text_config", None))
    return any(getattr(c, "tie_word_embeddings", False) for c in configs) and any(name in stored for name in partners)


def is_unused(name: str) -> bool:
    """True for stored tensors no target needs: they follow from the config, or serve training alone."""
    return bool(_UNUSED.search(name))


def _former(key: str) -> str:
    for pattern, name in _FORMER_NAMES:
        key = pattern.sub(name, key)
    return key
