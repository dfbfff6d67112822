"""Counter-based noise: (image seed, absolute position, purpose, draw) -> the same uniforms everywhere.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in integer tensor ops. A value
depends on nothing but its index, so it is the same on every device, batch size, window and order of evaluation. That
is what makes image ``i`` of a batch equal its single run, and the Gumbel-coupled exact mode equal plain decoding.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Purpose(IntEnum):
    """What a random number is used for; different purposes never share a number."""

    GUMBEL = 0  # one vector per position: the noise of plain decoding
    VERIFY = 1  # accept or reject a draft
    RESIDUAL = 2  # the token drawn after a rejection
    REDRAW = 3  # a new draft from the target law of this pass
    ENTRY = 4  # a draft entering the window


def philox4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four 32-bit words per counter; all arguments are int64 tensors holding 32-bit words, broadcast together.

    Products of two 32-bit words wrap in int64, but the low and the high word extracted by masking are still right.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((product1 >> 32) & _MASK) ^ c1 ^ k0,
            product1 & _MASK,
            ((product0 >> 32) & _MASK) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def seed_words(seeds: list[int], device: torch.device | str = "cpu") -> Tensor:
    """[B, 2] int64: low and high 32-bit word of each 64-bit seed. Raises ValueError outside 0 .. 2**64 - 1."""
    for seed in seeds:
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed} is outside 0 .. 2**64 - 1; give a non-negative 64-bit integer")
    return torch.tensor([[s & _MASK, s >> 32] for s in seeds], dtype=torch.int64, device=device)


class IndexedNoise:
    """Noise of a batch of images.

    Args:
        seeds: [B, 2] int64 from :func:`seed_words`.
    """

    def __init__(self, seeds: Tensor):
        self.seeds = seeds

    def keep(self, rows: Tensor) -> IndexedNoise:
        """The noise of the images ``rows`` (int64 indices) only."""
        return IndexedNoise(self.seeds[rows])

    def _key(self, dims: int) -> tuple[Tensor, Tensor]:
        shape = (-1,) + (1,) * (dims - 1)
        return self.seeds[:, 0].view(shape), self.seeds[:, 1].view(shape)

    def uniform(self, position: Tensor, purpose: Purpose, draw: Tensor) -> Tensor:
        """Float32 in [0, 1), shaped like ``position`` [B, ...]; ``draw`` [B] numbers the passes of each image."""
        counter = (position, torch.full_like(position, int(purpose)), draw.view((-1,) + (1,) * (position.dim() - 1)))
        word = philox4x32((*counter, torch.zeros_like(position)), self._key(position.dim()))[0]
        return (word >> 8).to(torch.float32) * 2.0**-24

    def gumbel(self, position: Tensor, vocabulary: int) -> Tensor:
        """[B, L, V] standard Gumbel noise of the absolute positions [B, L]; independent of pass and window.

        The uniform keeps its resolution near zero (2**-32), so improbable tokens win as often as they should.
        """
        lanes = torch.arange((vocabulary + 3) // 4, device=position.device)
        zero = torch.zeros((), dtype=torch.int64, device=position.device)
        counter = (position.unsqueeze(-1), zero + int(Purpose.GUMBEL), zero, lanes)
        words = torch.stack(philox4x32(counter, self._key(position.dim() + 1)), dim=-1).flatten(-2)[..., :vocabulary]
        uniform = (words.to(torch.float32) + 0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)
        return -torch.log(-torch.log1p(-uniform))
