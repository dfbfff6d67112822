"""Published names of the VQ model that Janus and LlamaGen share."""

from __future__ import annotations


def janus_vq_name(name: str) -> str:
    """transformers' name of a tensor of the VQ model -> the published one."""
    for new, old in (("encoder.down.", "encoder.conv_blocks."), ("decoder.up.", "decoder.conv_blocks.")):
        name = name.replace(new, old)
    for new, old in ((".block.", ".res."), ("mid.block_1", "mid.0"), ("mid.attn_1", "mid.1"), ("mid.block_2", "mid.2")):
        name = name.replace(new, old)
    return name
