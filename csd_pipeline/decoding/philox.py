"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in integer tensor ops."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor],
    key: tuple[Tensor, Tensor],
    constants: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Four 32-bit words per counter; all arguments are int64 tensors holding 32-bit words, broadcast together.

    The even and the odd words travel stacked, [2, ...], which halves the number of operations; every round swaps the
    two rows, instead of moving them back. Products of two 32-bit words wrap in int64, but their low and high words are
    still right. What stands above the low 32 bits of an odd word is masked away where it ends up: in an even one.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    even, odd, keys = torch.stack([c0, c2]), torch.stack([c1, c3]), torch.stack(torch.broadcast_tensors(*key))
    keys = keys.view(2, *(1,) * (c0.dim() - keys.dim() + 1), *keys.shape[1:])
    constants = philox_constants(c0.device) if constants is None else constants
    multipliers, weyl = (words.view(-1, 2, *(1,) * c0.dim()) for words in constants)
    round_keys = (keys + weyl).bitwise_and_(MASK)  # [rounds, 2, ...]
    round_keys[0::2] = round_keys[0::2].flip(1)
    for number in range(_ROUNDS):
        product = even * multipliers[number % 2]
        even = product >> 32
        even[0].bitwise_xor_(odd[1])
        even[1].bitwise_xor_(odd[0])
        even.bitwise_xor_(round_keys[number]).bitwise_and_(MASK)
        odd = product
    odd.bitwise_and_(MASK)
    return even[0], odd[0], even[1], odd[1]


@cache
def philox_constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """Multipliers [2, 2] (in order, swapped) and key increments [rounds, 2]; copied to a device once, a copy in every
    pass would make it wait."""
    increments = [[word * number for word in _WEYL] for number in range(_ROUNDS)]
    return torch.tensor([_MULTIPLIERS, _MULTIPLIERS[::-1]], device=device), torch.tensor(increments, device=device)
