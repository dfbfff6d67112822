"""BAAI's Emu3-Gen and Emu3-VisionTokenizer."""

from __future__ import annotations

import base64
from pathlib import Path

import torch
from families import spread

from .files import Published, read_weights, sharded, tensors_of, write_json, write_weights

EMU3_MERGES = [b"re", b"red", b"ca", b"cat", b" cat", b"ow", b"low", b"res"]


def emu3_original(folder: Path) -> Published:
    """BAAI's Emu3-Gen and Emu3-VisionTokenizer."""
    from transformers import Emu3Config, Emu3ForConditionalGeneration

    ranks = [bytes([byte]) for byte in range(256)] + [b" c", b" ca", *EMU3_MERGES]
    codes, start = 24, len(ranks)
    vision = ["<|image token|>", "<|image start|>", "<|image end|>"]
    vision += [f"<|visual token {code:06d}|>" for code in range(codes)]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205)), *vision]
    ids = {name: start + n for n, name in enumerate(special)}
    text = {
        "vocab_size": start + len(special),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "pad_token_id": ids["<|endoftext|>"],
        "bos_token_id": ids["<|extra_203|>"],
        "eos_token_id": ids["<|extra_204|>"],
    }
    vq = {"codebook_size": codes, "base_channels": 32, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1}
    config = Emu3Config(
        text_config=text, vq_config=vq | {"hidden_size": 32, "attn_resolutions": [3]}, vocabulary_map=ids
    )
    config.image_area = 64 * 64
    model = spread(Emu3ForConditionalGeneration(config))
    stored = {name.replace("model.text_model.", "model."): tensor for name, tensor in tensors_of(model).items()}
    stored = {name: tensor for name, tensor in stored.items() if ".vqmodel." not in name}
    folder.mkdir(parents=True)
    files = sharded(folder, stored, "safetensors")
    write_json(
        folder / "config.json",
        text
        | {"model_type": "Emu3", "architectures": ["Emu3ForCausalLM"], "image_area": 64 * 64, "rope_scaling": None},
    )
    lines = [base64.b64encode(token) + f" {rank}".encode() for rank, token in enumerate(ranks)]
    (folder / "emu3.tiktoken").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "emu3_vision_tokens.txt").write_text("\n".join(vision) + "\n", encoding="utf-8")
    pictures = folder.with_name(folder.name + "-vq")
    pictures.mkdir()
    write_weights(pictures / "model.safetensors", _emu3_vq(model))
    numbers = {"codebook_size": codes, "ch": 32, "ch_mult": [1, 1, 1, 1], "num_res_blocks": 1, "attn_resolutions": [3]}
    numbers |= {"embed_dim": 4, "z_channels": 4, "double_z": False, "temporal_downsample_factor": 4}
    write_json(pictures / "config.json", numbers | {"model_type": "Emu3VisionVQ"})
    key = "model.layers.1.self_attn.q_proj.weight"
    weights = next(file for file in files if key in read_weights(file))
    texts = [folder / "emu3.tiktoken", folder / "emu3_vision_tokens.txt"]
    return Published(folder, model, None, "red cat", weights, key, texts, {"vq": pictures})


def _emu3_vq(model) -> dict[str, torch.Tensor]:
    stored = {}
    for name, tensor in tensors_of(model, "model.vqmodel.").items():
        name = name.replace("down_block.down.", "down.").replace("up_block.up.", "up.")
        name = name.replace("middle_block.attn_norm.", "mid.attn_1.norm.").replace("middle_block.", "mid.")
        if ".attn_norms." in name:
            name = name.replace(".attn_norms.0.", ".attn.0.norm.").replace(".attn_norms.1.", ".attn.1.norm.")
        for letter in "qkv":
            name = name.replace(f".{letter}_proj.", f".{letter}.")
        name = name.replace(".out_proj.", ".proj_out.")
        if name.split(".")[-2] in ("q", "k", "v", "proj_out") and tensor.dim() == 2:
            tensor = tensor[..., None, None]
        stored[name] = tensor
    return stored
