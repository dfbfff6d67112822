"""deepseek-ai's Janus and Janus-Pro."""

from __future__ import annotations

from pathlib import Path

import torch
from families import spread, word_tokenizer
from helpers_janus import WORDS, tiny_janus

from .files import Published, read_weights, sharded, tensors_of, write_json
from .janus_vq import janus_vq_name

DEEPSEEK = {"bos": "<｜begin▁of▁sentence｜>", "eos": "<｜end▁of▁sentence｜>", "pad": "<｜▁pad▁｜>"}


def janus_original(folder: Path, pad: bool = True, suffix: str = "safetensors") -> Published:
    """deepseek-ai's Janus; ``pad``: whether the tokenizer's settings name the padding and begin-of-image tokens."""
    from transformers import JanusForConditionalGeneration

    config = tiny_janus().config
    config.vq_config.num_res_blocks, config.vq_config.channel_multiplier = 1, [1, 2]
    model = spread(JanusForConditionalGeneration(config))
    files = sharded(folder, _stored(tensors_of(model)), suffix)
    write_json(folder / "config.json", _config(config.text_config))
    tokenizer = _write_tokenizer(folder, pad)
    head = next(file for file in files if "gen_head.vision_head.weight" in read_weights(file))
    texts = [folder / "tokenizer.json"]
    return Published(folder, model, tokenizer, "red cat", head, "gen_head.vision_head.weight", texts)


def _stored(own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """transformers' tensors under the published names."""
    stored = {}
    for name, tensor in own.items():
        if name.startswith("model.vqmodel."):
            stored["gen_vision_model." + janus_vq_name(name.removeprefix("model.vqmodel."))] = tensor
        elif name.startswith("model.language_model.") or name == "lm_head.weight":
            stored["language_model." + name.replace("model.language_model.", "model.")] = tensor
        elif name.startswith("model.vision_model.encoder.layers.0.self_attn."):
            if ".q_proj." in name:
                joint = [own[name.replace("q_proj", letter + "_proj")] for letter in "qkv"]
                kind = name.rsplit(".", 1)[1]
                stored[f"vision_model.vision_tower.blocks.0.attn.qkv.{kind}"] = torch.cat(joint)
            elif ".projection_layer." in name:
                stored["vision_model.vision_tower.blocks.0.attn.proj." + name.rsplit(".", 1)[1]] = tensor
        elif name.startswith("model.vision_model.encoder.layers.0."):
            rest = name.removeprefix("model.vision_model.encoder.layers.0.").replace("layer_norm", "norm")
            stored[f"vision_model.vision_tower.blocks.0.{rest}"] = tensor
        elif name.startswith("model.vision_model.embeddings.patch_embedding."):
            stored["vision_model.vision_tower.patch_embed.proj." + name.rsplit(".", 1)[1]] = tensor
        elif name == "model.vision_model.embeddings.position_embedding.weight":
            stored["vision_model.vision_tower.pos_embed"] = tensor[None]
        elif name.startswith("model.vision_model.post_layernorm."):
            stored["vision_model.vision_tower.norm." + name.rsplit(".", 1)[1]] = tensor
        else:
            for new, old in (
                ("model.generation_aligner.fc1.", "gen_aligner.layers.0."),
                ("model.generation_aligner.hidden_layers.0.", "gen_aligner.layers.2."),
                ("model.aligner.fc1.", "aligner.layers.0."),
                ("model.aligner.hidden_layers.0.", "aligner.layers.2."),
                ("model.generation_head.proj_out.", "gen_head.output_mlp_projector."),
                ("model.generation_head.vision_head.", "gen_head.vision_head."),
                ("model.generation_embeddings.", "gen_embed."),
            ):
                if name.startswith(new):
                    stored[old + name.removeprefix(new)] = tensor
    stored["vision_model.vision_tower.attn_pool.latent"] = torch.zeros(1, 1, 16)
    stored["gen_vision_model.quantize.codebook_used"] = torch.zeros(64)
    return stored


def _config(text) -> dict:
    """The published config.json."""
    return {
        "model_type": "multi_modality",
        "architectures": ["MultiModalityCausalLM"],
        "aligner_config": {
            "cls": "MlpProjector",
            "model_type": "aligner",
            "params": {"depth": 2, "input_dim": 16, "n_embed": 32, "projector_type": "mlp_gelu"},
        },
        "gen_aligner_config": {
            "cls": "MlpProjector",
            "model_type": "gen_aligner",
            "params": {"depth": 2, "input_dim": 8, "n_embed": 32, "projector_type": "mlp_gelu"},
        },
        "gen_head_config": {
            "cls": "vision_head",
            "model_type": "gen_head",
            "params": {"image_token_embed": 32, "image_token_size": 24, "n_embed": 32},
        },
        "gen_vision_config": {
            "cls": "VQ-16",
            "model_type": "gen_vision",
            "params": {"image_token_size": 24, "n_embed": 8},
        },
        "vision_config": {
            "cls": "CLIPVisionTower",
            "model_type": "vision",
            "params": {"image_size": 32, "model_name": "siglip_large_patch16_384", "select_feature": "same"},
        },
        "language_config": {
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "_attn_implementation": "flash_attention_2",
            "hidden_size": text.hidden_size,
            "intermediate_size": text.intermediate_size,
            "max_position_embeddings": text.max_position_embeddings,
            "num_attention_heads": text.num_attention_heads,
            "num_hidden_layers": text.num_hidden_layers,
            "num_key_value_heads": text.num_key_value_heads,
            "vocab_size": text.vocab_size,
        },
    }


def _write_tokenizer(folder: Path, pad: bool):
    """The published files; returns the tokenizer they stand for."""
    special = [DEEPSEEK["pad"], DEEPSEEK["bos"], DEEPSEEK["eos"], "<begin_of_image>", "<image_placeholder>"]
    special += ["<|User|>", "<|Assistant|>"]
    named = {f"{name}_token": DEEPSEEK[name] for name in ("bos", "eos", "pad")}
    tokenizer = word_tokenizer(special, named, bos=DEEPSEEK["bos"], words=WORDS)
    tokenizer.add_special_tokens({"additional_special_tokens": special[3:]})
    plain = word_tokenizer(special, {}, words=WORDS)  # BOS is in the published settings, not in the file
    plain.backend_tokenizer.add_special_tokens(special)
    plain.backend_tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "bos_token": DEEPSEEK["bos"]}
    settings |= {"eos_token": DEEPSEEK["eos"], "model_max_length": 16384}
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": ["<image_placeholder>", "<|User|>"]})
    write_json(folder / "tokenizer_config.json", settings | ({"pad_token": DEEPSEEK["pad"]} if pad else {}))
    return tokenizer
