"""Weights of 8 or 4 bits for small cards: which modules keep full precision, and configs that save and reload.

What gives the logits of codes, what embeds codes and what makes pixels of them stays as it is; the decoder's layers,
which hold nearly all the weights, are packed.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch

from .checks import require_choice
from .targets import full_precision_modules

BACKENDS = {"bitsandbytes": (8, 4), "torchao": (8,)}  # bits each of them can pack, save and load again
LIBRARIES = ("transformers", "diffusers")


def quantization_config(
    bits: int = 8,
    *,
    backend: str = "bitsandbytes",
    library: str = "transformers",
    compute_dtype: torch.dtype = torch.bfloat16,
):
    """What ``from_pretrained(..., quantization_config=...)`` packs the target's weights by.

    The folder ``save_pretrained`` writes then says so itself and is loaded without this. bitsandbytes is the format of
    Dettmers et al. (arXiv 2208.07339, 2305.14314).

    Args:
        bits: 8, or 4 (bitsandbytes only, in blocks of the NF4 format).
        backend: "bitsandbytes" or "torchao"; has to be installed.
        library: whose model class the target is: "diffusers" for LlamaGen, else "transformers".
        compute_dtype: of the products with 4-bit weights.

    Returns:
        A ``diffusers.PipelineQuantizationConfig`` for the component ``target``.

    Raises:
        ValueError: an unknown backend or library, or bits the backend can not pack and save.
        ImportError: the backend is not installed.
    """
    require_choice("backend", backend, BACKENDS)
    require_choice("library", library, LIBRARIES)
    if bits not in BACKENDS[backend]:
        able = "; ".join(f"{name}: {', '.join(map(str, numbers))}" for name, numbers in BACKENDS.items())
        raise ValueError(f"{backend} can not pack weights into {bits!r} bits and save them; bits by backend: {able}")
    if importlib.util.find_spec(backend) is None:
        raise ImportError(f"{bits}-bit weights need {backend}; run `pip install {backend}`")
    from diffusers.quantizers import PipelineQuantizationConfig

    classes = importlib.import_module(library)
    if backend == "bitsandbytes":
        options = {"load_in_8bit": True} if bits == 8 else {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        options |= {"bnb_4bit_compute_dtype": compute_dtype, "llm_int8_skip_modules": full_precision_modules()}
        config = classes.BitsAndBytesConfig(**options)
    else:
        from torchao.quantization import Int8WeightOnlyConfig

        config = classes.TorchAoConfig(Int8WeightOnlyConfig(), modules_to_not_convert=full_precision_modules())
    return PipelineQuantizationConfig(quant_mapping={"target": config})


def config_of_target(config, of_diffusers: bool):
    """The entry for the target of a ``quantization_config`` argument, for one pipeline or for one model; or None.

    Raises:
        ValueError: it is for model classes of the other library.
    """
    if config is None:
        return None
    mapping = getattr(config, "quant_mapping", None)
    if mapping is not None:
        config = mapping.get("target")
    elif hasattr(config, "quant_backend"):
        raise ValueError(
            "a PipelineQuantizationConfig by quant_backend leaves no part in full precision; make it with "
            "csd_pipeline.quantization.quantization_config, or give a quant_mapping for 'target'"
        )
    if config is not None and type(config).__module__.startswith("diffusers.") != of_diffusers:
        right = "diffusers" if of_diffusers else "transformers"
        raise ValueError(
            f"the target is a model of {right}, the quantization config is {type(config).__module__.split('.')[0]}'s; "
            f"use quantization_config(..., library={right!r})"
        )
    return config
