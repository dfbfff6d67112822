"""The VQ model of Janus and LlamaGen as their authors published it, for transformers' JanusVQVAE (the same network)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .names import count_levels, renamer

translate = renamer(
    [
        (r"^encoder\.conv_blocks\.", "encoder.down."),
        (r"^decoder\.conv_blocks\.", "decoder.up."),  # in both, the coarsest level first
        (r"\.res\.", ".block."),
        (r"\.mid\.0\.", ".mid.block_1."),
        (r"\.mid\.1\.", ".mid.attn_1."),
        (r"\.mid\.2\.", ".mid.block_2."),
    ]
)


def sizes(tensors: Mapping[str, Tensor], prefix: str = "") -> dict:
    """Arguments of ``JanusVQVAEConfig``, read off the shapes of the stored tensors.

    Raises:
        KeyError: naming a tensor every such model has.
    """
    base = tensors[f"{prefix}encoder.conv_in.weight"].shape[0]
    start = re.escape(prefix) + r"encoder\.conv_blocks\."
    levels, blocks = count_levels(tensors, start + r"(\d+)\."), count_levels(tensors, start + r"0\.res\.(\d+)\.")
    widths = [tensors[f"{prefix}encoder.conv_blocks.{n}.res.0.conv1.weight"].shape[0] for n in range(levels)]
    codes, code_width = tensors[f"{prefix}quantize.embedding.weight"].shape
    return {
        "base_channels": base,
        "channel_multiplier": [width // base for width in widths],
        "num_res_blocks": blocks,
        "latent_channels": tensors[f"{prefix}decoder.conv_in.weight"].shape[1],
        "embed_dim": code_width,
        "num_embeddings": codes,
    }
