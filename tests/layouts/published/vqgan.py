"""Meta's files of the picture encoder and decoder of Chameleon, Anole and Lumina-mGPT."""

from __future__ import annotations

from pathlib import Path

import torch

from .files import tensors_of, write_weights


def vqgan_file(folder: Path, model) -> Path:
    """Meta's vqgan.ckpt and vqgan.yaml, the discriminator of the training included."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(model, "model.vqmodel.")
    tensors = {k: v for k, v in tensors.items() if k.split(".")[0] in VQGAN_PARTS}
    write_weights(folder / "vqgan.ckpt", tensors | {"loss.discriminator.main.0.weight": torch.zeros(2, 3, 4, 4)})
    (folder / "vqgan.yaml").write_text(
        "model:\n  base_learning_rate: 4.5e-06\n  target: taming.models.vqgan.VQModel\n  params:\n    embed_dim: 6\n"
        "    n_embed: 40\n    ddconfig:\n      double_z: false\n      z_channels: 6\n      resolution: 64\n",
        encoding="utf-8",
    )
    return folder / "vqgan.ckpt"


VQGAN_PARTS = ("encoder", "decoder", "quantize", "quant_conv", "post_quant_conv")
