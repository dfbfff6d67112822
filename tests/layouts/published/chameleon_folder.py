"""Chameleon, Anole and Lumina-mGPT in folders of transformers."""

from __future__ import annotations

import json
from pathlib import Path

from families import chameleon, lumina

from .files import Published, read_weights, sharded, tensors_of, write_json
from .vqgan import vqgan_file


def chameleon_folder(folder: Path, decoder: bool = False, suffix: str = "safetensors") -> Published:
    """transformers' Chameleon; with ``decoder`` as Anole's conversions keep it, else beside the folder."""
    left_out = "no tensor" if decoder else ".vqmodel.decoder."
    return write_folder(folder, chameleon(), "ChameleonForConditionalGeneration", left_out, suffix)


def lumina_folder(folder: Path) -> Published:
    """Lumina-mGPT: no VQ model in the folder at all."""
    return write_folder(folder, lumina(), "ChameleonXLLMXForConditionalGeneration", ".vqmodel.")


def write_folder(folder: Path, part, architecture: str, left_out: str, suffix: str = "safetensors") -> Published:
    tensors = {name: tensor for name, tensor in tensors_of(part.model).items() if left_out not in name}
    decoder = any(".vqmodel.decoder." in name for name in tensors)
    folder.mkdir(parents=True)
    files = sharded(folder, tensors, suffix)
    part.model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"architectures": [architecture]})
    part.tokenizer.save_pretrained(folder)
    extra = {} if decoder else {"vq": vqgan_file(folder.with_name(folder.name + "-vq"), part.model)}
    key = "model.layers.1.self_attn.q_proj.weight"
    weights = next(file for file in files if key in read_weights(file))
    return Published(folder, part.model, part.tokenizer, "red cat", weights, key, [folder / "tokenizer.json"], extra)
