"""The pixel decoder against diffusers' VQGAN decoder, whose tensors have other names."""

import re

import pytest
import torch
from diffusers.models.autoencoders.vae import Decoder
from families import chameleon, lumina

from csd_pipeline.targets.chameleon import ChameleonAdapter
from csd_pipeline.targets.chameleon_pixels import ChameleonPixelDecoder
from csd_pipeline.targets.lumina import LuminaAdapter


class Config:
    latent_channels, base_channels, channel_multiplier = 6, 32, [1, 2, 2]
    num_res_blocks, attn_type, attn_resolutions, resolution = 1, "vanilla", None, 16
    in_channels, dropout = 3, 0.0


def diffusers_name(name: str, levels: int) -> str:
    name = name.replace("nin_shortcut", "conv_shortcut").replace("norm_out", "conv_norm_out")
    name = re.sub(r"^mid\.block_(\d)", lambda m: f"mid_block.resnets.{int(m[1]) - 1}", name)
    name = re.sub(r"^mid\.attn_1\.norm", "mid_block.attentions.0.group_norm", name)
    for old, new in (("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("proj_out", "to_out.0")):
        name = re.sub(rf"^mid\.attn_1\.{old}\.", f"mid_block.attentions.0.{new}.", name)
    name = re.sub(r"^up\.(\d)\.block\.", lambda m: f"up_blocks.{levels - 1 - int(m[1])}.resnets.", name)
    return re.sub(r"^up\.(\d)\.upsample\.", lambda m: f"up_blocks.{levels - 1 - int(m[1])}.upsamplers.0.", name)


def test_pixels_equal_diffusers_decoder():
    torch.manual_seed(0)
    ours = ChameleonPixelDecoder(Config)
    theirs = Decoder(
        in_channels=6,
        out_channels=3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(32, 64, 64),
        layers_per_block=1,
        norm_num_groups=32,
        act_fn="silu",
    )
    renamed = {diffusers_name(name, 3): tensor for name, tensor in ours.state_dict().items()}
    wanted = theirs.state_dict()
    theirs.load_state_dict({name: tensor.reshape(wanted[name].shape) for name, tensor in renamed.items()})
    latents = torch.randn(2, 6, 4, 5)
    with torch.no_grad():
        assert torch.allclose(ours(latents), theirs(latents), atol=1e-4)


def test_attention_where_the_config_asks_for_it():
    class Attending(Config):
        attn_resolutions = [8]

    names = set(ChameleonPixelDecoder(Attending).state_dict()) - set(ChameleonPixelDecoder(Config).state_dict())
    assert {name.rsplit(".", 2)[0] for name in names} == {"up.1.attn.0", "up.1.attn.1"}


def test_line_marks_are_left_out_and_rows_stay_rows():
    part = lumina((64, 128))
    adapter = LuminaAdapter(part.model, part.size)
    picture = torch.randint(40, (1, 4, 8), generator=torch.Generator().manual_seed(2))
    tokens = torch.nn.functional.pad(picture, (0, 1), value=40).flatten(1)
    with torch.no_grad():
        assert torch.equal(adapter.decode(tokens), part.model.decode_codes(picture))


def test_stock_chameleon_without_a_decoder_is_refused():
    from transformers import ChameleonForConditionalGeneration

    model = chameleon().model
    stock = ChameleonForConditionalGeneration(model.config)
    with pytest.raises(ValueError, match="has no pixel decoder, so its codes can not become a picture"):
        ChameleonAdapter(stock)
