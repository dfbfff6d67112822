"""Trains Janus' VQ decoder to draw 128 px pictures from the fixed picture codes, coarse level first.

Nearly all the work is in the finest level. It starts as plain pixel doubling, is skipped in the first steps, which
draw the picture at half size, and joins for the last ones. Whole pictures are drawn throughout: the group norms would
see other statistics in a window, and colours would drift.
"""

import logging
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import JanusForConditionalGeneration

from .dataset import StickerDataset
from .decoder_levels import decoder_parameters
from .optimizers import learning_rate_scale
from .pixel_codes import PixelCodes, to_unit

DECODER_SEED_SHIFT = 2000
TEST_STEP = 1_000_000_003
log = logging.getLogger(__name__)


class DecoderTrainer:
    """Trains `model.model.vqmodel` in place; the state is saved in `folder` and continued from there."""

    def __init__(self, model: JanusForConditionalGeneration, dataset: StickerDataset, codes: PixelCodes, recipe: dict,
                 folder: Path):  # fmt: skip
        self.vq, self.dataset, self.codes = model.model.vqmodel.train(), dataset, codes
        self.numbers, self.seed = recipe["decoder"], recipe["seed"] + DECODER_SEED_SHIFT
        self.parameters, self.codebook = decoder_parameters(self.vq), self.vq.quantize.embedding.weight
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=self.numbers["lr"], betas=(0.9, 0.95), weight_decay=1e-4, fused=True
        )
        self.checkpoint = folder / "decoder.pt"
        folder.mkdir(parents=True, exist_ok=True)
        self.step = self._resume() if self.checkpoint.exists() else 0

    @property
    def steps(self) -> int:
        return self.numbers["coarse_steps"] + self.numbers["full_steps"]

    def train(self) -> None:
        errors: list[float] = []
        while self.step < self.steps:
            errors.append(self.train_step())
            if self.step % 50 == 0 or self.step == self.steps:
                log.info("decoder step %d: %.2f dB", self.step, decibels(sum(errors) / len(errors)))
                errors.clear()
                self._save()

    def train_step(self) -> float:
        """One update; returns the mean squared error of the drawn pixels (which lie in -1..1)."""
        numbers = self.numbers
        scale = learning_rate_scale(self.step, self.steps, self.steps * 2 // 3, numbers["warmup_steps"])
        for group in self.optimizer.param_groups:
            group["lr"] = numbers["lr"] * max(scale, 0.02)
        rows = range(numbers["batch"])
        pictures = np.stack([self.dataset.sample(self.seed, self.step, row).picture for row in rows])
        coarse = self.step < numbers["coarse_steps"]
        drawn, wanted = self.draw(self.codes.encode(pictures), coarse), to_unit(pictures)
        wanted = F.avg_pool2d(wanted, 2) if coarse else wanted
        loss = picture_loss(drawn, wanted, numbers["gradient_weight"])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            self.codebook.copy_(F.normalize(self.codebook, dim=-1))  # decode() does, encode() does not
        self.step += 1
        return (drawn.detach() - wanted).square().mean().item()

    def draw(self, tokens: torch.Tensor, coarse: bool) -> torch.Tensor:
        """Tokens (n, 256) -> pictures (n, 3, 128, 128), or (n, 3, 64, 64) without the finest level; with gradients."""
        decoder = self.vq.decoder
        vectors = self.vq.quantize.get_codebook_entry(tokens)
        hidden = decoder.mid(decoder.conv_in(self.vq.post_quant_conv(vectors)))
        levels = decoder.up[:-1] if coarse else decoder.up
        for level, up in enumerate(levels):
            for position, block in enumerate(up.block):
                hidden = block(hidden)
                hidden = up.attn[position](hidden) if len(up.attn) else hidden
            hidden = up.upsample(hidden) if level + 1 < len(levels) else hidden
        hidden = decoder.norm_out(hidden)
        return decoder.conv_out(hidden * torch.sigmoid(hidden))

    def _save(self) -> None:
        state = {name: p.detach() for name, p in self.parameters.items()}
        partial = self.checkpoint.with_suffix(".partial")
        torch.save({"step": self.step, "parameters": state, "optimizer": self.optimizer.state_dict()}, partial)
        partial.replace(self.checkpoint)

    def _resume(self) -> int:
        saved = torch.load(self.checkpoint, weights_only=True)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(saved["parameters"][name])
        self.optimizer.load_state_dict(saved["optimizer"])
        return saved["step"]

    @torch.no_grad()
    def test(self, count: int) -> dict[str, float]:
        """Mean PSNR in dB on held-out pairs, of the decoder and of the bare centroids at double size."""
        decoder, centroids = [], []
        for index in range(count):
            picture = self.dataset.sample(self.seed, TEST_STEP, index, held_out=True).picture[None]
            tokens, wanted = self.codes.encode(picture), to_unit(picture)
            drawn = self.vq.decode(tokens).clamp(-1, 1)
            decoder.append(decibels((drawn - wanted).square().mean().item()))
            doubled = F.interpolate(self.codes.decode(tokens), scale_factor=2)
            centroids.append(decibels((doubled - wanted).square().mean().item()))
        return {"decoder_psnr": sum(decoder) / count, "centroids_psnr": sum(centroids) / count, "pictures": count}


def picture_loss(drawn: torch.Tensor, wanted: torch.Tensor, gradient_weight: float) -> torch.Tensor:
    """Absolute and squared error of pixels (n, 3, h, w), plus absolute error of their differences, for sharp edges."""
    error = drawn - wanted
    edges = error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean()
    return error.abs().mean() + error.square().mean() + gradient_weight * edges


def decibels(squared_error: float) -> float:
    """PSNR of a mean squared error of pixels in -1..1."""
    return 10 * math.log10(4 / max(squared_error, 1e-12))
