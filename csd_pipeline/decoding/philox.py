"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in integer tensor ops."""

from __future__ import annotations

import torch
from torch import Tensor

from .indexing import count_up

MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four 32-bit words per counter; all arguments are int64 tensors holding 32-bit words; the counter's are broadcast
    together, the key's to them.

    Products of two 32-bit words wrap in int64, but their low and high words are still right. What stands above the low
    32 bits of the second and fourth word is masked away where it ends up, in the first and third.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    for k0, k1 in zip(*map(_round_keys, key, _WEYL), strict=True):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = (second >> 32).bitwise_xor_(c1).bitwise_xor_(k0).bitwise_and_(MASK)
        c2 = (first >> 32).bitwise_xor_(c3).bitwise_xor_(k1).bitwise_and_(MASK)
        c1, c3 = second, first
    return c0, c1.bitwise_and_(MASK), c2, c3.bitwise_and_(MASK)


def _round_keys(word: Tensor, increment: int) -> tuple[Tensor, ...]:
    rounds = count_up(_ROUNDS, word.device)
    return (word[..., None] + rounds * increment).bitwise_and_(MASK).unbind(-1)
