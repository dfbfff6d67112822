"""Emu3-Gen in folders of transformers."""

from __future__ import annotations

import json
from pathlib import Path

from families import emu3

from .files import Published, read_weights, sharded, tensors_of, write_json


def emu3_folder(folder: Path, former: bool = False) -> Published:
    """transformers' Emu3; ``former``: with the names its first versions wrote, which published folders still have."""
    part = emu3()
    tensors = tensors_of(part.model)
    if former:
        text = {
            n.replace("model.text_model.", "text_model.model."): t for n, t in tensors.items() if "vqmodel" not in n
        }
        tensors = {n.replace("model.vqmodel.", "vqmodel."): t for n, t in tensors.items() if "vqmodel" in n} | text
        tensors["text_model.lm_head.weight"] = tensors.pop("lm_head.weight")
    files = sharded(folder, tensors, "safetensors")
    part.model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"architectures": ["Emu3ForConditionalGeneration"]})
    part.tokenizer.save_pretrained(folder)
    key = f"{'text_model.model' if former else 'model.text_model'}.layers.1.self_attn.q_proj.weight"
    weights = next(file for file in files if key in read_weights(file))
    return Published(folder, part.model, part.tokenizer, "red cat", weights, key, [folder / "tokenizer.json"])
