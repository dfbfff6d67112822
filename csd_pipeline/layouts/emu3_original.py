"""Emu3-Gen as BAAI published it (model_type Emu3), with its pictures' encoder and decoder in a second folder."""

from __future__ import annotations

from pathlib import Path

from csd_pipeline.weight_files import IncompleteCheckpoint, read_json, shards

from . import tiktoken_file
from .base import Destinations, Extra, Layout, OpenCheckpoint, Piece, command
from .names import as_linear, prefixed, renamer

_text = renamer([(r"^model\.", "model.text_model.")])
_vq_names = renamer(
    [
        (r"^encoder\.down\.", "encoder.down_block.down."),
        (r"^decoder\.up\.", "decoder.up_block.up."),
        (r"\.mid\.attn_1\.norm\.", ".middle_block.attn_norm."),
        (r"\.mid\.", ".middle_block."),
        (r"\.attn\.(\d+)\.norm\.", r".attn_norms.\1."),
        (r"\.(attn_1|attn\.\d+)\.([qkv])\.", r".\1.\2_proj."),
        (r"\.(attn_1|attn\.\d+)\.proj_out\.", r".\1.out_proj."),
    ]
)
_VQ_KEYS = {"ch": "base_channels", "ch_mult": "channel_multiplier", "z_channels": "latent_channels"}
_VQ_KEYS |= {"double_z": "double_latent"}
_VQ_SAME = ("codebook_size", "embed_dim", "in_channels", "out_channels", "temporal_downsample_factor")
_VQ_SAME += ("num_res_blocks", "attn_resolutions")
_TEXT_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_TEXT_KEYS += ("num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "rope_theta")
_TEXT_KEYS += ("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings")
# of the published tokenizer
_RANKS, _VISION = "emu3.tiktoken", "emu3_vision_tokens.txt"
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_FIRST_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205)))
_NAMED = {"bos_token": "<|extra_203|>", "eos_token": "<|extra_204|>", "pad_token": "<|endoftext|>"}


class Emu3Original(Layout):
    title = "Emu3 in the original BAAI layout"

    def recognises(self, place: Path, config: dict) -> bool:
        return config.get("model_type") == "Emu3"

    def open(self, place: Path, extra: Extra) -> OpenCheckpoint:
        config, texts = read_json(place / "config.json"), extra.tokenizer or place
        pieces, lacks, vq_config = [Piece(shards(place), _text)], None, {}
        if extra.vq is None:
            lacks = f"{place} holds no picture decoder; {command(place, '--vq FOLDER')} (BAAI/Emu3-VisionTokenizer)"
        else:
            vq_config = read_json(extra.vq / "config.json")
            pieces.append(Piece(shards(extra.vq), prefixed("model.vqmodel.", _vq)))
        return OpenCheckpoint(
            self.title,
            place,
            lambda: _build(config, vq_config, texts),
            pieces,
            load_tokenizer=lambda: _tokenizer(texts),
            lacks=lacks,
        )


def _vq(name: str) -> Destinations:
    """transformers' attention is made of linear layers, the published one of convolutions over single pixels."""
    convolution = name.endswith((".q.weight", ".k.weight", ".v.weight", ".proj_out.weight"))
    return [(new, as_linear if convolution else None) for new, _ in _vq_names(name)]


def _build(config: dict, vq_config: dict, texts: Path):
    from transformers import Emu3Config, Emu3ForConditionalGeneration

    names = _special(texts)[1]
    vq = {"codebook_size": sum(name.startswith("<|visual token") for name in names)}
    vq |= {new: vq_config[old] for old, new in _VQ_KEYS.items() if old in vq_config}
    vq |= {key: vq_config[key] for key in _VQ_SAME if key in vq_config}
    if vq_config.get("ch") and vq_config.get("ch_mult"):
        vq["hidden_size"] = vq_config["ch"] * vq_config["ch_mult"][-1]  # attention works at the coarsest level
    settings = Emu3Config(
        text_config={key: config[key] for key in _TEXT_KEYS if key in config},
        vq_config=vq,
        vocabulary_map=names,
    )
    if config.get("image_area"):
        settings.image_area = config["image_area"]
    return Emu3ForConditionalGeneration(settings)


def _special(folder: Path) -> tuple[dict[bytes, int], dict[str, int]]:
    """Ranks of the byte strings, and the ids of the special tokens, which follow them."""
    missing = [name for name in (_RANKS, _VISION) if not (folder / name).is_file()]
    if missing:
        raise IncompleteCheckpoint(f"{folder} has no tokenizer; {' and '.join(missing)} belong there (BAAI/Emu3-Gen)")
    ranks = tiktoken_file.read_ranks(folder / _RANKS)
    vision = [line.strip() for line in (folder / _VISION).read_text(encoding="utf-8").splitlines() if line.strip()]
    start = max(ranks.values()) + 1
    return ranks, {name: start + n for n, name in enumerate((*_FIRST_SPECIAL, *vision))}


def _tokenizer(folder: Path):
    ranks, special = _special(folder)
    return tiktoken_file.build(ranks, special, _PATTERN, **_NAMED)
