"""Janus and Janus-Pro as deepseek-ai published them (model_type multi_modality), for transformers' Janus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from csd_pipeline.weight_files import IncompleteCheckpoint, describe, read_json, shards

from . import janus_vq
from .base import Destinations, Extra, Layout, OpenCheckpoint, Piece
from .names import count_levels, prefixed, renamer, third
from .tokenizers import from_folder

_BLOCK = r"^vision_model\.vision_tower\.blocks\.(\d+)\."
_others = renamer(
    [
        (_BLOCK + r"attn\.proj\.", r"model.vision_model.encoder.layers.\1.self_attn.projection_layer."),
        (_BLOCK + r"norm", r"model.vision_model.encoder.layers.\1.layer_norm"),
        (_BLOCK, r"model.vision_model.encoder.layers.\1."),
        (r"^vision_model\.vision_tower\.patch_embed\.proj\.", "model.vision_model.embeddings.patch_embedding."),
        (r"^vision_model\.vision_tower\.norm\.", "model.vision_model.post_layernorm."),
        (r"^gen_aligner\.layers\.0\.", "model.generation_aligner.fc1."),
        (r"^aligner\.layers\.0\.", "model.aligner.fc1."),
        (r"^gen_head\.output_mlp_projector\.", "model.generation_head.proj_out."),
        (r"^gen_head\.", "model.generation_head."),
        (r"^gen_embed\.", "model.generation_embeddings."),
        (r"^language_model\.lm_head\.", "lm_head."),
        (r"^language_model\.model\.", "model.language_model."),
    ],
    dropped=r"^vision_model\.vision_tower\.attn_pool\.",  # pools a whole picture, which nobody asks for here
)
_vq = prefixed("model.vqmodel.", janus_vq.translate)
_POSITIONS = "vision_model.vision_tower.pos_embed"
_ALIGNERS = (("gen_aligner.layers.", "model.generation_aligner."), ("aligner.layers.", "model.aligner."))
_LEFT_OUT = ("torch_dtype", "dtype", "_attn_implementation", "model_type", "architectures", "_name_or_path")
# what the published code takes for granted, whatever the tokenizer's own settings say
_SPECIAL = {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>", "pad_token": "<｜▁pad▁｜>"}


class JanusOriginal(Layout):
    title = "Janus in the original deepseek-ai layout"

    def recognises(self, place: Path, config: dict) -> bool:
        return config.get("model_type") == "multi_modality"

    def open(self, place: Path, extra: Extra) -> OpenCheckpoint:
        files, config = shards(place), read_json(place / "config.json")
        tensors = {name: tensor for file in files for name, tensor in describe(file).items()}

        def build():
            from transformers import JanusForConditionalGeneration

            return JanusForConditionalGeneration(_config(place, config, tensors))

        return OpenCheckpoint(
            self.title,
            place,
            build,
            [Piece(files, _translate)],
            load_tokenizer=lambda: from_folder(extra.tokenizer or place, **_SPECIAL),
        )


def _translate(name: str) -> Destinations:
    if name.startswith("gen_vision_model."):
        return _vq(name.removeprefix("gen_vision_model."))
    if name == _POSITIONS:
        return [("model.vision_model.embeddings.position_embedding.weight", lambda tensor: tensor.squeeze(0))]
    for start, new in _ALIGNERS:  # 0: into the width of the decoder; 2, 4, ...: further layers, activations between
        layer, _, rest = name.removeprefix(start).partition(".")
        if name.startswith(start) and layer.isdecimal() and int(layer) >= 2:
            return [(f"{new}hidden_layers.{int(layer) // 2 - 1}.{rest}", None)]
    destinations = _others(name)
    if ".attn.qkv." not in name or not destinations:
        return destinations
    stem = destinations[0][0].replace(".attn.qkv.", ".self_attn.{}_proj.")
    return [(stem.format(letter), third(part)) for part, letter in enumerate("qkv")]


def _config(place: Path, config: dict, tensors: Mapping[str, Tensor]):
    """transformers' JanusConfig: numbers from config.json, what it leaves to the published code from the shapes."""
    from transformers import JanusConfig

    try:
        head, aligner = config["gen_head_config"]["params"], config["gen_aligner_config"]["params"]
        vision = tensors["vision_model.vision_tower.patch_embed.proj.weight"]
        text = {key: value for key, value in config["language_config"].items() if key not in _LEFT_OUT}
        side = config["vision_config"]["params"]["image_size"]
        vq = janus_vq.sizes(tensors, "gen_vision_model.")
        text |= {"vocab_size": tensors["language_model.lm_head.weight"].shape[0]}
        fc1 = tensors["vision_model.vision_tower.blocks.0.mlp.fc1.weight"].shape[0]
    except KeyError as error:
        raise IncompleteCheckpoint(
            f"{place} holds no {error.args[0]!r}, which Janus has; download its config.json and weights again"
        ) from error
    width, patch = vision.shape[0], vision.shape[-1]
    codes = (side // patch) ** 2
    shared = {"projection_dim": aligner["n_embed"]}
    return JanusConfig(
        text_config=text | {"model_type": "llama"},
        vision_config={
            "hidden_size": width,
            "num_hidden_layers": count_levels(tensors, _BLOCK),
            "num_attention_heads": max(width // 64, 1),  # of SigLIP; not used for drawing
            "image_size": side,
            "patch_size": patch,
            "mlp_ratio": fc1 / width,
            "num_image_tokens": codes,
            "depth": config["aligner_config"]["params"]["depth"],
            **shared,
        },
        vq_config=vq
        | shared
        | {
            "num_patches": side // patch,
            "num_hidden_layers": aligner["depth"],
            "image_token_embed_dim": head["image_token_embed"],
        },
    )
