"""Meta's vqgan.ckpt: the picture encoder and decoder of Chameleon, Anole and Lumina-mGPT, under its own names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from csd_pipeline.weight_files import IncompleteCheckpoint, describe, shards

from .base import Piece
from .names import count_levels, prefixed, renamer

_FILE = "vqgan.ckpt"
ADVICE = (
    "vqgan.ckpt is in the folder 'tokenizer' of Chameleon's official download, and beside text_tokenizer.json and "
    "vqgan.yaml in the folder 'tokenizer' of GAIR/Anole-7b-v0.1 on the hub"
)


def vq_file(place: Path) -> Path:
    """The VQ file that ``place`` (the file, or a folder that holds it) stands for.

    Raises:
        IncompleteCheckpoint: there is none.
    """
    if place.is_file():
        return place
    for folder in (place, place / "tokenizer"):
        if (folder / _FILE).is_file():
            return folder / _FILE
    if place.is_dir() and list(place.glob("*.safetensors")):
        return shards(place)[0]
    raise IncompleteCheckpoint(f"no {_FILE} at {place}; {ADVICE}")


def piece(file: Path) -> Piece:
    """All of it, but for the discriminator it was trained against."""
    return Piece([file], prefixed("model.vqmodel.", renamer([(r"^model\.vqmodel\.", "")])))


def sizes(tensors: Mapping[str, Tensor], place: Path) -> dict:
    """Arguments of ``ChameleonVQVAEConfig`` (but the resolution), read off the shapes of the stored tensors.

    Raises:
        IncompleteCheckpoint: naming a tensor every such model has.
    """
    try:
        base = tensors["encoder.conv_in.weight"].shape[0]
        levels = count_levels(tensors, r"encoder\.down\.(\d+)\.")
        widths = [tensors[f"encoder.down.{n}.block.0.conv1.weight"].shape[0] for n in range(levels)]
        codes, code_width = tensors["quantize.embedding.weight"].shape
        latent = tensors["decoder.conv_in.weight"].shape[1]
    except KeyError as error:
        raise IncompleteCheckpoint(f"{place} holds no tensor {error.args[0]!r}; give Meta's {_FILE}") from error
    return {
        "base_channels": base,
        "channel_multiplier": [width // base for width in widths],
        "num_res_blocks": count_levels(tensors, r"encoder\.down\.0\.block\.(\d+)\."),
        "latent_channels": latent,
        "double_latent": tensors["encoder.conv_out.weight"].shape[0] == 2 * latent,
        "embed_dim": code_width,
        "num_embeddings": codes,
        "attn_type": "vanilla" if "encoder.mid.attn_1.q.weight" in tensors else "none",
    }


def read_sizes(file: Path) -> dict:
    """:func:`sizes` of a file."""
    return sizes(describe(file), file)
