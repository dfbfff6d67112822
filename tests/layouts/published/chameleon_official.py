"""Chameleon and Anole in Meta's folder: one file, or one for each device of a model cut for several."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from families import chameleon

from .files import Published, tensors_of, write_json, write_weights
from .vqgan import vqgan_file

RANKS = 4  # devices Chameleon of 30B was cut for
OF_30B = {"swin_norm": True, "num_attention_heads": 8, "num_key_value_heads": 4}
_CUT_ROWS = ("attention.wq.", "attention.wk.", "attention.wv.", "feed_forward.w1.", "feed_forward.w3.", "output.")
_CUT_COLUMNS = ("attention.wo.", "feed_forward.w2.", "tok_embeddings.")
_NAMES = (
    ("model.", ""),
    ("embed_tokens", "tok_embeddings"),
    ("lm_head", "output"),
    ("self_attn.q_norm", "attention.q_normalization"),
    ("self_attn.k_norm", "attention.k_normalization"),
    ("self_attn.q_proj", "attention.wq"),
    ("self_attn.k_proj", "attention.wk"),
    ("self_attn.v_proj", "attention.wv"),
    ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate_proj", "feed_forward.w1"),
    ("mlp.down_proj", "feed_forward.w2"),
    ("mlp.up_proj", "feed_forward.w3"),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)


def chameleon_official(folder: Path) -> Published:
    """Meta's folder: models/7b with one .pth, tokenizer with three files."""
    part = chameleon()
    alike_within(part.model, devices=1)
    return write_official(folder, part, devices=1)


def chameleon_parallel(folder: Path) -> Published:
    """Meta's folder of Chameleon 30B: models/30b with four .pth, keys in groups, norms behind the layers' halves."""
    part = chameleon(**OF_30B)
    alike_within(part.model, devices=RANKS)
    return write_official(folder, part, devices=RANKS)


def write_official(folder: Path, part, devices: int) -> Published:
    """A model whose heads of one device have norms that are alike, cut for ``devices``."""
    whole, place = _stored(part.model), folder / "models" / ("7b" if devices == 1 else "30b")
    files = ["consolidated.pth"] if devices == 1 else [f"consolidated.{rank:02d}.pth" for rank in range(devices)]
    place.mkdir(parents=True)
    for rank, file in enumerate(files):
        write_weights(place / file, {name: _cut(name, tensor, rank, devices) for name, tensor in whole.items()})
    _write_settings(place, part.model.config, devices)
    vqgan_file(folder / "tokenizer", part.model)
    texts = _write_texts(folder / "tokenizer", part)
    return Published(
        folder, part.model, part.tokenizer, "red cat", place / files[-1], "layers.1.attention.wq.weight", texts
    )


def alike_within(model, devices: int) -> None:
    """Meta keeps one query and one key norm for all heads of a device."""
    with torch.no_grad():
        for layer in model.model.layers:
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                heads = norm.weight.shape[0] // devices
                norm.weight.copy_((torch.rand_like(norm.weight[:devices]) + 0.5).repeat_interleave(heads, 0))
                norm.bias.copy_(torch.randn_like(norm.bias[:devices]).repeat_interleave(heads, 0))


def _stored(model) -> dict[str, torch.Tensor]:
    """transformers' tensors under the published names, the two halves of a head as neighbours; norms [heads, width]."""
    config, stored = model.config, {}
    counts = {".wq.": config.num_attention_heads, ".wk.": config.num_key_value_heads}
    for name, tensor in tensors_of(model).items():
        if ".vqmodel." in name:
            continue
        for new, old in _NAMES:
            name = name.replace(new, old)
        if "normalization" in name:
            first, second = tensor.chunk(2, -1)
            tensor = torch.stack([first, second], -1).flatten(1)
        for letter, heads in counts.items():
            if letter in name:
                halves = [head.chunk(2) for head in tensor.chunk(heads)]
                tensor = torch.cat([torch.stack([first, second], 1).flatten(0, 1) for first, second in halves])
        stored[name] = tensor
    return stored


def _cut(name: str, tensor: torch.Tensor, rank: int, devices: int) -> torch.Tensor:
    """What the device ``rank`` holds of a tensor."""
    if "normalization" in name:
        return tensor.chunk(devices)[rank][0].clone()
    if any(part in name for part in _CUT_ROWS):
        return tensor.chunk(devices)[rank].clone()
    if any(part in name for part in _CUT_COLUMNS):
        return tensor.chunk(devices, 1)[rank].clone()
    return tensor


def _write_settings(place: Path, config, devices: int) -> None:
    numbers = {"dim": 32, "n_layers": 2, "n_heads": config.num_attention_heads, "norm_eps": 1e-5, "rope_theta": 10000.0}
    numbers |= {"swin_norm": config.swin_norm, "qk_normalization": True, "vocab_size": config.vocab_size}
    if config.num_key_value_heads != config.num_attention_heads:
        numbers["n_kv_heads"] = config.num_key_value_heads
    write_json(place / "params.json", {"model": numbers, "model_parallel_size": devices})
    write_json(place / "consolidate_params.json", {"model_parallel_size": devices})


def _write_texts(folder: Path, part) -> list[Path]:
    names = dict(part.model.config.vocabulary_map)
    names["<reserved08707>"] = names.pop("<image>")
    content = json.loads(part.tokenizer.backend_tokenizer.to_str())
    content["model"]["vocab"], content["post_processor"] = names, None
    write_json(folder / "text_tokenizer.json", content)
    return [folder / "text_tokenizer.json"]
