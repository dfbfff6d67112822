"""LlamaGen's files."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from families import llamagen

from .files import Published, tensors_of
from .janus_vq import janus_vq_name


def llamagen_file(folder: Path, condition: str) -> Published:
    """c2i_*.pt or t2i_*.pt as training writes them, vq_ds16_*.pt, and for text a whole T5."""
    from transformers import T5Config, T5ForConditionalGeneration

    part = llamagen(condition)
    model = part.model
    folder.mkdir(parents=True)
    stored = {k: v for k, v in tensors_of(model).items() if not k.startswith(("vq.", "text_encoder."))}
    stored["freqs_cis"] = torch.zeros(model.config.condition_slots + 16, 4, 2)
    if condition == "class":
        stored["freqs_cis"] = torch.zeros(1 + 16, 4, 2)
    weights = folder / ("t2i_tiny.pt" if condition == "text" else "c2i_tiny.pt")
    torch.save({"model": stored, "steps": 3, "args": argparse.Namespace(gpt_model="GPT-XL")}, weights)
    vq = {janus_vq_name(name): tensor for name, tensor in tensors_of(model, "vq.").items()}
    vq["quantize.codebook_used"] = torch.zeros(64)
    torch.save({"model": vq}, folder / "vq_ds16.pt")
    extra, texts = {"vq": folder / "vq_ds16.pt"}, []
    if condition == "text":
        whole = T5ForConditionalGeneration(T5Config(**model.config.text_config))
        whole.load_state_dict(tensors_of(model, "text_encoder."), strict=False)
        place = folder / "flan-t5"
        whole.save_pretrained(place)
        part.tokenizer.save_pretrained(place)
        extra["text_encoder"], texts = place, [place / "tokenizer.json"]
    prompt = "red cat" if condition == "text" else "class 3"
    return Published(weights, model, part.tokenizer, prompt, weights, "layers.1.attention.wqkv.weight", texts, extra)
