"""The levels of Janus' VQ decoder: which weights train, and how a decoder starts from one with fewer levels."""

import torch
from torch import nn
from transformers.models.janus.modeling_janus import JanusVQVAE


def decoder_parameters(vq: JanusVQVAE) -> dict[str, nn.Parameter]:
    """What is trained: everything from the code vectors to the pixels."""
    trained = ("decoder.", "post_quant_conv.", "quantize.")
    return {name: p for name, p in vq.named_parameters() if name.startswith(trained)}


def copy_decoder(vq: JanusVQVAE, source: JanusVQVAE) -> None:
    """Copies a trained decoder of the same or of fewer levels; levels it lacks start as pixel doubling."""
    levels, trained = vq.decoder.num_resolutions, source.decoder.num_resolutions
    if trained > levels:
        raise ValueError(f"the decoder to start from has {trained} levels, this one only {levels}")
    state, known = vq.state_dict(), source.state_dict()
    state.update({name: t for name, t in known.items() if name in state and not name.startswith("encoder.")})
    vq.load_state_dict(state)
    for level in range(trained, levels):
        start_as_pixel_doubling(vq, level)


@torch.no_grad()
def start_as_pixel_doubling(vq: JanusVQVAE, level: int) -> None:
    """The upsampling convolution before the level passes its input on, and the level's residual block adds nothing."""
    convolution = vq.decoder.up[level - 1].upsample.conv
    nn.init.dirac_(convolution.weight)
    convolution.bias.zero_()
    for block in vq.decoder.up[level].block:
        block.conv2.weight.zero_()
        block.conv2.bias.zero_()
