"""The tiny Janus: its configuration, its initial weights, and the start from an existing checkpoint."""

import math

import torch
from torch import nn
from transformers import (
    JanusConfig,
    JanusForConditionalGeneration,
    JanusVisionConfig,
    JanusVQVAEConfig,
    LlamaConfig,
)

from .decoder_levels import start_as_pixel_doubling
from .pixel_codes import GRID, PixelCodes
from .text_tokenizer import BOS_ID, EOS_ID, IMAGE_ID, PAD_ID

UNUSED_VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_ratio": 2.0, "depth": 1}


def janus_config(sizes: dict) -> JanusConfig:
    """The stock Janus configuration of these sizes (section "model" of the recipe).

    Janus derives the token grid from the vision tower, so that exists although nothing trains it; the rows of its
    VQ decoder need 96 channels or more, because its group norm has 32 groups and would else erase colours.
    """
    patch = 2 ** (sizes["decoder_levels"] - 1)
    hidden = sizes["hidden"]
    vision = JanusVisionConfig(
        **UNUSED_VISION, image_size=GRID * patch, patch_size=patch, projection_dim=hidden, num_image_tokens=GRID**2
    )
    vq = JanusVQVAEConfig(
        embed_dim=sizes["code_dim"],
        num_embeddings=512,
        latent_channels=sizes["decoder_channels"],
        base_channels=sizes["decoder_channels"],
        channel_multiplier=[1] * sizes["decoder_levels"],
        num_res_blocks=0,
        num_patches=GRID,
        projection_dim=hidden,
        num_hidden_layers=2,
        image_token_embed_dim=hidden,
    )
    text = LlamaConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=hidden,
        intermediate_size=sizes["mlp"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["heads"],
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": sizes["rope_theta"]},
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        tie_word_embeddings=True,
    )
    return JanusConfig(text_config=text, vision_config=vision, vq_config=vq, image_token_id=IMAGE_ID)


def new_model(sizes: dict, codes: PixelCodes, seed: int) -> JanusForConditionalGeneration:
    """A model with fan-in initialisation; Janus' own (0.02 everywhere) is far too small at these widths."""
    torch.manual_seed(seed)
    model = JanusForConditionalGeneration(janus_config(sizes))
    with torch.no_grad():
        for module in model.model.vqmodel.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
        start_as_pixel_doubling(model.model.vqmodel, sizes["decoder_levels"] - 1)
        model.model.vqmodel.quantize.embedding.weight.copy_(codes.codebook)
        for name, parameter in target_parameters(model).items():
            _init_parameter(name, parameter, codes)
    return model


def _init_parameter(name: str, parameter: nn.Parameter, codes: PixelCodes) -> None:
    if "generation_embeddings" in name:
        parameter.copy_(codes.codebook * math.sqrt(codes.codebook.shape[1]))
    elif "embed_tokens" in name:
        parameter.normal_(0, 0.5)
    elif parameter.dim() == 2:
        small = any(part in name for part in ("vision_head", "o_proj", "down_proj"))
        parameter.normal_(0, (0.5 if small else 1.0) / math.sqrt(parameter.shape[1]))


def target_parameters(model: JanusForConditionalGeneration) -> dict[str, nn.Parameter]:
    """What the autoregressive target trains: the language model and the generation head, embeddings and aligner."""
    trained = ("model.language_model.", "model.generation_")
    return {name: p for name, p in model.named_parameters() if name.startswith(trained)}


def layer_matrices(parameters: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The weight matrices inside the transformer layers, the part that Muon updates."""
    return {name: p for name, p in parameters.items() if "language_model.layers" in name and p.dim() == 2}


def copy_target(model: JanusForConditionalGeneration, source: JanusForConditionalGeneration) -> None:
    """Copies the autoregressive part of another model; the picture size may differ."""
    known = target_parameters(source)
    with torch.no_grad():
        for name, parameter in target_parameters(model).items():
            if name not in known or known[name].shape != parameter.shape:
                got = tuple(known[name].shape) if name in known else "nothing"
                raise ValueError(f"cannot start from that model: {name} needs {tuple(parameter.shape)}, found {got}")
            parameter.copy_(known[name])


def inherit_rows(model: JanusForConditionalGeneration, codes: PixelCodes, changed: torch.Tensor) -> None:
    """Lets each recycled code start with the rows of the nearest code that kept its meaning."""
    kept = torch.ones(len(codes.centroids), dtype=torch.bool)
    kept[changed] = False
    numbers = kept.nonzero()[:, 0]
    parents = numbers[torch.cdist(codes.centroids[changed], codes.centroids[kept]).argmin(1)]
    inner = model.model
    with torch.no_grad():
        inner.vqmodel.quantize.embedding.weight.copy_(codes.codebook)
        for rows in (inner.generation_embeddings.weight, *inner.generation_head.vision_head.parameters()):
            rows[changed] = rows[parents]
