"""Chameleon as Meta published it, and Anole after it: models/7b/consolidated*.pth, params.json, a tokenizer folder.

Chameleon of 30B lies in four files, one per device it was trained on. Each holds the rows of the projections its heads
and its part of the feed-forward layer make, the columns of those that read them, and norms of its own over its heads.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import yaml
from torch import Tensor

from csd_pipeline.weight_files import IncompleteCheckpoint, read_json

from . import vqgan
from .base import Destinations, Extra, Layout, OpenCheckpoint, Piece
from .names import renamer
from .split_files import SplitFiles, describe
from .tokenizers import from_json

_RESOLUTION = 512  # of the published vqgan.yaml
_POSITIONS = 4096
_ROWS = ("wq", "wk", "wv", "w1", "w3", "output")  # cut along the rows; the others along the columns
_COLUMNS = ("wo", "w2", "tok_embeddings")
_IMAGE = ("<reserved08707>", "<image>")  # the reserved token transformers gave a meaning
_names = renamer(
    [
        (r"^tok_embeddings\.", "model.embed_tokens."),
        (r"^output\.", "lm_head."),
        (r"^norm\.", "model.norm."),
        (r"^layers\.", "model.layers."),
        (r"\.attention\.w([qkvo])\.", r".self_attn.\1_proj."),
        (r"\.attention\.([qk])_normalization\.", r".self_attn.\1_norm."),
        (r"\.feed_forward\.w1\.", ".mlp.gate_proj."),
        (r"\.feed_forward\.w2\.", ".mlp.down_proj."),
        (r"\.feed_forward\.w3\.", ".mlp.up_proj."),
        (r"\.attention_norm\.", ".input_layernorm."),
        (r"\.ffn_norm\.", ".post_attention_layernorm."),
    ],
    dropped=r"^rope\.freqs$",
)


class ChameleonOfficial(Layout):
    title = "Chameleon in Meta's own layout"

    def recognises(self, place: Path, config: dict) -> bool:
        return not config and place.is_dir() and bool(_models(place))

    def open(self, place: Path, extra: Extra) -> OpenCheckpoint:
        folders = _models(place)
        if len(folders) > 1:
            raise IncompleteCheckpoint(
                f"{place / 'models'} holds several models; give the folder of one: {' or '.join(map(str, folders))}"
            )
        params = read_json(folders[0] / "params.json")
        if (folders[0] / "consolidate_params.json").is_file():
            params |= read_json(folders[0] / "consolidate_params.json")
        params = params | params.get("model", {})
        weights = _weights(folders[0], params.get("model_parallel_size"))
        home = folders[0].parents[1]
        texts = (extra.tokenizer or home / "tokenizer") / "text_tokenizer.json"
        if not texts.is_file():
            raise IncompleteCheckpoint(f"{texts} is missing; {vqgan.ADVICE}")
        vq = vqgan.vq_file(extra.vq or home)
        return OpenCheckpoint(
            self.title,
            place,
            lambda: _build(folders[0], describe(weights), params, vq, texts),
            [Piece([weights], _translate(params)), vqgan.piece(vq)],
            load_tokenizer=lambda: _tokenizer(texts),
        )


def _models(place: Path) -> list[Path]:
    """The folders of the models of a download; ``place`` may be one of them."""
    if (place / "params.json").is_file() and list(place.glob("consolidated*.pth")):
        return [place.absolute()]
    return sorted(file.parent for file in (place / "models").glob("*/params.json"))


def _weights(folder: Path, size: int | None) -> Path | SplitFiles:
    """The one file, or those of a model cut for several devices: ``size`` as params.json states it."""
    if (folder / "consolidated.pth").is_file():
        return folder / "consolidated.pth"
    found = {file.name for file in folder.glob("consolidated.*.pth")}
    wanted = [f"consolidated.{rank:02d}.pth" for rank in range(size or len(found) or 1)]
    missing = [name for name in wanted if name not in found]
    if missing and not found:
        raise IncompleteCheckpoint(f"{folder} has no consolidated.pth; it belongs beside params.json")
    if missing or len(found) > len(wanted):
        raise IncompleteCheckpoint(
            f"{folder} must hold {len(wanted)} weight files, {wanted[0]} to {wanted[-1]} (params.json says how many); "
            + (f"missing: {', '.join(missing)}" if missing else f"there are {len(found)}")
        )
    files = tuple(folder / name for name in wanted)
    return files[0] if len(files) == 1 else SplitFiles(files, _join)


def _join(name: str, parts: list[Tensor]) -> Tensor:
    """A tensor from its parts; what every device keeps is one of its copies, or their mean where they drifted apart."""
    part = _part(name)
    if part in _ROWS:
        return torch.cat(parts)
    if part in _COLUMNS:
        return torch.cat(parts, 1)
    if part.endswith("_normalization"):
        return torch.stack(parts)
    if parts[0].is_meta or all(torch.equal(parts[0], other) for other in parts[1:]):
        return parts[0]
    return torch.stack(parts).float().mean(0).to(parts[0].dtype)


def _part(name: str) -> str:
    """``wq`` of layers.0.attention.wq.weight."""
    return name.split(".")[-2] if "." in name else name


def _translate(params: dict) -> Callable[[str], Destinations]:
    heads = params["n_heads"]
    key_heads = params.get("n_kv_heads") or heads

    def translate(name: str) -> Destinations:
        destinations = _names(name)
        part = _part(name)
        count = heads if part in ("wq", "q_normalization") else key_heads
        if part in ("wq", "wk"):
            return [(new, _halves(count)) for new, _ in destinations]
        if part.endswith("_normalization"):
            return [(new, _halves_per_head(count)) for new, _ in destinations]
        return destinations

    return translate


def _halves(heads: int) -> Callable[[Tensor], Tensor]:
    """Rows of a projection: rotary pairs are neighbours in Meta's code, half a head apart in transformers'."""
    return lambda weight: weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _halves_per_head(heads: int) -> Callable[[Tensor], Tensor]:
    """The same for a norm [head_dim], or [devices, head_dim], the heads share in Meta's code: [heads, head_dim]."""

    def rearrange(weight: Tensor) -> Tensor:
        norms = weight.view(-1, weight.shape[-1] // 2, 2).transpose(1, 2).flatten(1)
        return norms.repeat_interleave(heads // len(norms), 0)

    return rearrange


def _build(folder: Path, tensors: Mapping[str, Tensor], params: dict, vq: Path, texts: Path):
    from transformers import ChameleonConfig

    from csd_pipeline.targets.chameleon_pixels import ChameleonWithPixels

    try:
        vocabulary, width = tensors["tok_embeddings.weight"].shape
        feed_forward = tensors["layers.0.feed_forward.w1.weight"].shape[0]
        names = _with_image(read_json(texts))["model"]["vocab"]
        sizes = {"num_attention_heads": params["n_heads"], "num_hidden_layers": params["n_layers"]}
    except KeyError as error:
        raise IncompleteCheckpoint(
            f"{folder} and {texts} hold no {error.args[0]!r}, which Chameleon has; download them again"
        ) from error
    settings = vq.parent / "vqgan.yaml"
    yaml_config = yaml.safe_load(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    resolution = yaml_config.get("model", {}).get("params", {}).get("ddconfig", {}).get("resolution", _RESOLUTION)
    return ChameleonWithPixels(
        ChameleonConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=feed_forward,
            num_key_value_heads=params.get("n_kv_heads") or params["n_heads"],
            max_position_embeddings=_POSITIONS,
            rms_norm_eps=params["norm_eps"],
            rope_theta=params.get("rope_theta", 10000.0),
            swin_norm=params.get("swin_norm", False),
            vq_config=vqgan.read_sizes(vq) | {"resolution": resolution},
            vocabulary_map=names,
            bos_token_id=names.get("<s>", 0),
            pad_token_id=names.get("<pad>", 1),
            eos_token_id=names.get("</s>", 2),
            **sizes,
        )
    )


def _with_image(content: dict) -> dict:
    """A tokenizer file in which the image token has the name transformers looks for."""
    reserved, image = _IMAGE
    vocabulary = content["model"]["vocab"]
    if reserved in vocabulary:
        vocabulary[image] = vocabulary.pop(reserved)
    for entry in content.get("added_tokens", ()):
        if entry["content"] == reserved:
            entry["content"] = image
    return content


def _tokenizer(texts: Path):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps(_with_image(read_json(texts))), encoding="utf-8")
        return from_json(file, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
