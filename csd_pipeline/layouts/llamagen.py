"""LlamaGen's published files: c2i_*.pt or t2i_*.pt for the decoder, vq_*.pt for the pictures, a T5 folder for texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from csd_pipeline.weight_files import IncompleteCheckpoint, describe, read_json, shards

from . import janus_vq
from .base import Destinations, Extra, Layout, OpenCheckpoint, Piece, command
from .names import count_levels, prefixed, renamer
from .tokenizers import as_named

_FREQUENCIES = "freqs_cis"  # of the rotary positions, kept in some files
_network = renamer([], dropped=rf"^{_FREQUENCIES}$|\.kv_cache\.|^causal_mask$")
_HEADS = {(768, 12): 12, (1024, 24): 16, (1280, 36): 20, (1536, 48): 24, (2560, 48): 40}  # (width, layers): heads
_HEADS |= {(2048, 22): 32, (3200, 24): 32, (4096, 32): 32}
_SIDES = (256, 384, 512)
_VQ_WANTED = "--vq vq_ds16_c2i.pt (or vq_ds16_t2i.pt for text)"
_TEXT_WANTED = "--text-encoder FOLDER (of flan-t5-xl)"


class LlamaGen(Layout):
    title = "LlamaGen's published file"

    def recognises(self, place: Path, config: dict) -> bool:
        return place.is_file() and place.suffix in (".pt", ".pth", ".bin", ".safetensors")

    def open(self, place: Path, extra: Extra) -> OpenCheckpoint:
        tensors = describe(place)
        needed = ("tok_embeddings.weight", "layers.0.attention.wqkv.weight", "layers.0.feed_forward.w1.weight")
        absent = [name for name in needed if name not in tensors]
        if absent:
            raise IncompleteCheckpoint(f"{place} is no LlamaGen file: it holds no {', '.join(absent)}")
        pieces, lacking, config = [Piece([place], _network)], [], _sizes(place, tensors)
        if extra.vq is None:
            lacking.append(("pictures", _VQ_WANTED))
        else:
            pieces.append(Piece([extra.vq], prefixed("vq.", janus_vq.translate)))
        if config["condition"] == "text" and extra.text_encoder is None:
            lacking.append(("texts", _TEXT_WANTED))
        elif config["condition"] == "text":
            translate = _text_encoder(tensors["tok_embeddings.weight"].dtype)
            pieces.append(Piece(shards(extra.text_encoder), translate))
        lacks = None
        if lacking:
            what, options = zip(*lacking, strict=True)
            lacks = f"{place} turns neither {' nor '.join(what)} into its numbers; {command(place, ' '.join(options))}"
        return OpenCheckpoint(
            self.title,
            place,
            lambda: _build(config, tensors, extra),
            pieces,
            load_tokenizer=lambda: (
                as_named(extra.tokenizer or extra.text_encoder) if config["condition"] == "text" else None
            ),
            lacks=lacks,
        )


def _sizes(place: Path, tensors: Mapping[str, Tensor]) -> dict:
    """Arguments of the target that follow from the shapes, the file's name where they do not."""
    vocabulary, width = tensors["tok_embeddings.weight"].shape
    layers = count_levels(tensors, r"layers\.(\d+)\.")
    config = {
        "dim": width,
        "num_layers": layers,
        "ffn_dim": tensors["layers.0.feed_forward.w1.weight"].shape[0],
        "vocabulary": vocabulary,
    }
    if "cls_embedding.uncond_embedding" in tensors:
        slots, caption = tensors["cls_embedding.uncond_embedding"].shape
        config |= {"condition": "text", "condition_slots": slots, "caption_dim": caption}
    elif "cls_embedding.embedding_table.weight" in tensors:
        classes = tensors["cls_embedding.embedding_table.weight"].shape[0] - 1
        config |= {"condition": "class", "condition_slots": 1, "classes": classes}
    else:
        raise IncompleteCheckpoint(f"{place} is no LlamaGen file: it holds no cls_embedding")
    if _FREQUENCIES in tensors:  # [slots + codes, half a head, 2]
        length, half = tensors[_FREQUENCIES].shape[:2]
        side = round((length - config["condition_slots"]) ** 0.5)
        return config | {"num_heads": width // (2 * half), "grid_side": side}
    if (width, layers) not in _HEADS:
        raise IncompleteCheckpoint(
            f"{place} has width {width} and {layers} layers, which no published LlamaGen has; its number of heads "
            f"is known from a tensor {_FREQUENCIES!r} only"
        )
    named = re.findall(r"(?<!\d)(\d{3})(?!\d)", place.stem)
    sides = [int(number) for number in named if int(number) in _SIDES]
    if len(sides) != 1:
        raise IncompleteCheckpoint(
            f"the name of {place} must tell its picture size, as published: one of {', '.join(map(str, _SIDES))} "
            "(like c2i_XL_384.pt)"
        )
    return config | {"num_heads": _HEADS[width, layers], "picture_side": sides[0]}


def _build(config: dict, tensors: Mapping[str, Tensor], extra: Extra):
    from csd_pipeline.targets.llamagen_network import LlamaGenTarget

    config = dict(config)
    try:
        vq = janus_vq.sizes(describe(extra.vq)) if extra.vq else {}
    except KeyError as error:
        raise IncompleteCheckpoint(
            f"{extra.vq} holds no tensor {error.args[0]!r}; give LlamaGen's vq_ds16_c2i.pt or vq_ds16_t2i.pt"
        ) from error
    vq.pop("num_embeddings", None)  # the target's own number, which the shapes are compared with
    side = config.pop("picture_side", None)
    if side is not None:
        config["grid_side"] = side // 2 ** (len(vq.get("channel_multiplier", range(5))) - 1)
    text = None
    if config["condition"] == "text":
        usual = _FLAN_T5_XL | {"d_model": config["caption_dim"]}
        text = read_json(extra.text_encoder / "config.json") if extra.text_encoder else usual
    return LlamaGenTarget(**config, vq_config=vq, text_config=text)


_FLAN_T5_XL = {"d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_layers": 24, "num_heads": 32, "vocab_size": 32128}
_FLAN_T5_XL |= {"feed_forward_proj": "gated-gelu"}


def _text_encoder(dtype: torch.dtype) -> Callable[[str], Destinations]:
    """The encoder's half of T5, in the number format of the decoder that reads its features."""

    def translate(name: str) -> Destinations:
        if name.startswith(("decoder.", "lm_head.")) or name == "encoder.embed_tokens.weight":  # shared.weight again
            return []
        return [(f"text_encoder.{name}", lambda tensor: tensor if dtype == tensor.dtype else tensor.to(dtype))]

    return translate
