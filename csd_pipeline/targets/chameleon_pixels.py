"""Chameleon with its picture decoder: transformers' class holds the encoder of the VQ model only.

The decoder is VQGAN's (Esser et al., arXiv 2012.09841) in Chameleon's sizes. Its tensors carry the names of Meta's
``vqgan.ckpt`` under ``model.vqmodel.``, which is also where converted Anole checkpoints keep them.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers.models.chameleon.modeling_chameleon import (
    ChameleonForConditionalGeneration,
    ChameleonVQVAEEncoderAttnBlock,
    ChameleonVQVAEEncoderResnetBlock,
)

_NORM_GROUPS = 32


class ChameleonPixelDecoder(nn.Module):
    """Quantised latents [B, latent_channels, h, w] -> pixels [B, 3, h * f, w * f], about [-1, 1].

    Args:
        config: the ``vq_config`` of a Chameleon model.
    """

    def __init__(self, config):
        super().__init__()
        levels, channels = len(config.channel_multiplier), config.base_channels * config.channel_multiplier[-1]
        resolution = config.resolution // 2 ** (levels - 1)
        self.conv_in = nn.Conv2d(config.latent_channels, channels, 3, padding=1)
        self.mid = nn.Module()
        self.mid.block_1 = ChameleonVQVAEEncoderResnetBlock(config, channels, channels)
        self.mid.attn_1 = ChameleonVQVAEEncoderAttnBlock(channels) if config.attn_type == "vanilla" else nn.Identity()
        self.mid.block_2 = ChameleonVQVAEEncoderResnetBlock(config, channels, channels)
        stages = []
        for level in reversed(range(levels)):
            out = config.base_channels * config.channel_multiplier[level]
            attends = config.attn_type == "vanilla" and resolution in (config.attn_resolutions or ())
            stages.append(_UpStage(config, channels, out, attends, upsample=level > 0))
            channels, resolution = out, resolution * 2
        self.up = nn.ModuleList(reversed(stages))  # stored by resolution, finest first
        self.norm_out = nn.GroupNorm(_NORM_GROUPS, channels, eps=1e-6)
        self.conv_out = nn.Conv2d(channels, getattr(config, "out_channels", None) or config.in_channels, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        hidden = self.mid.block_2(self.mid.attn_1(self.mid.block_1(self.conv_in(latents))))
        for stage in reversed(self.up):
            hidden = stage(hidden)
        return self.conv_out(nn.functional.silu(self.norm_out(hidden)))


class _UpStage(nn.Module):
    """One resolution of the decoder: residual blocks, with attention where configured, then twice the size."""

    def __init__(self, config, channels: int, out: int, attends: bool, upsample: bool):
        super().__init__()
        count = config.num_res_blocks + 1
        self.block = nn.ModuleList(
            ChameleonVQVAEEncoderResnetBlock(config, channels if i == 0 else out, out) for i in range(count)
        )
        self.attn = nn.ModuleList(ChameleonVQVAEEncoderAttnBlock(out) for _ in range(count if attends else 0))
        self.upsample = nn.Module()
        self.upsample.conv = nn.Conv2d(out, out, 3, padding=1) if upsample else None

    def forward(self, hidden: Tensor) -> Tensor:
        for i, block in enumerate(self.block):
            hidden = block(hidden)
            if len(self.attn):
                hidden = self.attn[i](hidden)
        if self.upsample.conv is None:
            return hidden
        return self.upsample.conv(nn.functional.interpolate(hidden, scale_factor=2.0, mode="nearest"))


class ChameleonWithPixels(ChameleonForConditionalGeneration):
    """``ChameleonForConditionalGeneration`` that can also turn its image codes into pixels."""

    def __init__(self, config):
        super().__init__(config)
        self.model.vqmodel.decoder = ChameleonPixelDecoder(config.vq_config)
        self.post_init()

    def decode_codes(self, codes: Tensor) -> Tensor:
        """[B, h, w] int64 codes -> [B, 3, h * f, w * f] pixels, about [-1, 1]."""
        vq = self.model.vqmodel
        latents = vq.quantize.embedding(codes).permute(0, 3, 1, 2)
        return vq.decoder(vq.post_quant_conv(latents))


class LuminaWithPixels(ChameleonWithPixels):
    """The same network in Lumina-mGPT's checkpoints, which draw pictures of many sizes with line ends."""


for _class in (ChameleonWithPixels, LuminaWithPixels):
    _class.__module__ = "csd_pipeline"  # saved folders name it there
