"""Counter-based noise: (image seed, absolute position, purpose, draw) -> the same uniforms everywhere.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in integer tensor ops. A value
depends on nothing but its index, so it is the same on every device, batch size, window and order of evaluation. That
is what makes image ``i`` of a batch equal its single run, and the Gumbel-coupled exact mode equal plain decoding.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

import torch
from torch import Tensor

from csd_pipeline.names import SEEDS

from .indexing import take

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# Noise made ahead and kept is the same numbers for fewer operations; what it may take, in floats of a whole batch:
_SMALL_TABLE = 2**23  # 32 MiB: always worth it
_LARGE_TABLE = 2**27  # 512 MiB: only for requests of several positions, which come back to each of them (Gumbel noise)
_CHUNK = 2**20  # floats of a table made at once; bounds the memory its making takes
_PASSES_AHEAD = 16


class Purpose(IntEnum):
    """What a random number is used for; different purposes never share a number."""

    GUMBEL = 0  # one vector per position: the noise of plain decoding
    VERIFY = 1  # accept or reject a draft
    RESIDUAL = 2  # the token drawn after a rejection
    REDRAW = 3  # a new draft from the target law of this pass
    ENTRY = 4  # a draft entering the window


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor],
    key: tuple[Tensor, Tensor],
    constants: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Four 32-bit words per counter; all arguments are int64 tensors holding 32-bit words, broadcast together.

    The even and the odd words travel stacked, [2, ...], which halves the number of operations; every round swaps the
    two rows, instead of moving them back. Products of two 32-bit words wrap in int64, but the low and the high word
    extracted by masking are still right.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    even, odd, keys = torch.stack([c0, c2]), torch.stack([c1, c3]), torch.stack(torch.broadcast_tensors(*key))
    keys = keys.view(2, *(1,) * (c0.dim() - keys.dim() + 1), *keys.shape[1:])
    constants = _constants(c0.device) if constants is None else constants
    multipliers, weyl = (words.view(-1, 2, *(1,) * c0.dim()) for words in constants)
    round_keys = (keys + weyl).bitwise_and_(_MASK)  # [rounds, 2, ...]
    round_keys[0::2] = round_keys[0::2].flip(1)
    for number in range(_ROUNDS):
        product = even * multipliers[number % 2]
        even = (product >> 32).bitwise_xor_(odd.flip(0)).bitwise_xor_(round_keys[number]).bitwise_and_(_MASK)
        odd = product.bitwise_and_(_MASK)
    return even[0], odd[0], even[1], odd[1]


@cache
def _constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """Multipliers [2, 2] (in order, swapped) and key increments [rounds, 2]; copied to a device once, a copy in every
    pass would make it wait."""
    increments = [[word * number for word in _WEYL] for number in range(_ROUNDS)]
    return torch.tensor([_MULTIPLIERS, _MULTIPLIERS[::-1]], device=device), torch.tensor(increments, device=device)


def seed_words(seeds: list[int], device: torch.device | str = "cpu") -> Tensor:
    """[B, 2] int64: low and high 32-bit word of each 64-bit seed. Raises ValueError outside 0 .. 2**64 - 1."""
    for seed in seeds:
        if not 0 <= seed < SEEDS:
            raise ValueError(f"seed {seed} is outside 0 .. 2**64 - 1; give a non-negative 64-bit integer")
    return torch.tensor([[s & _MASK, s >> 32] for s in seeds], dtype=torch.int64, device=device)


class IndexedNoise:
    """Noise of a batch of images.

    Args:
        seeds: [B, 2] int64 from :func:`seed_words`.
        positions: number of positions an image has, if known; lets noise be made ahead and kept where that pays.
    """

    def __init__(self, seeds: Tensor, positions: int = 0):
        self.seeds, self.positions = seeds, positions
        self._constants = _constants(seeds.device)
        self._gumbel_table: Tensor | None = None  # [B, N, V]
        self._gumbel_ahead = True  # False once a batch was too large: a table made late in its run would not pay
        self._tables: dict[int, Tensor] = {}  # by number of siblings: [B, passes, 4, N, siblings] uniforms
        self._block, self._prepared = 0, False  # which passes the tables are of, and whether there is a pass
        self._of_pass: dict[int, Tensor] = {}  # of the prepared pass, [B, 4, N, siblings]
        self._last: tuple | None = None
        self._clamped: tuple[Tensor, Tensor] | None = None  # the positions last asked for, and those inside the image

    def keep(self, rows: Tensor) -> IndexedNoise:
        """The noise of the images ``rows`` (int64 indices) only."""
        kept = IndexedNoise(self.seeds[rows], self.positions)
        kept._gumbel_ahead = self._gumbel_ahead
        if self._gumbel_table is not None:
            kept._gumbel_table = self._gumbel_table[rows]
        return kept

    def prepare(self, draw: int) -> None:
        """Called by the host before pass ``draw``: makes uniforms ahead where that pays.

        Until the next call a tensor [] with that number may be given as ``draw``: a pass need not know it.
        """
        block = draw // _PASSES_AHEAD
        if self._prepared and block != self._block:
            for siblings, table in self._tables.items():  # in place: a captured pass reads the same storage
                table.copy_(self._uniforms_ahead(block, siblings))
        self._block, self._prepared = block, True
        self._of_pass, self._last, self._clamped = {}, None, None

    def uniform(self, position: Tensor, purpose: Purpose, draw: Tensor | int) -> Tensor:
        """Float32 in [0, 1), shaped like ``position`` [B, ...].

        Args:
            position: absolute positions; must not be changed in place (a repeated request is answered from memory).
            purpose: any but GUMBEL.
            draw: number of the pass: [B] int64, or one for all images, [] int64 or an int.
        """
        if purpose is Purpose.GUMBEL:
            raise ValueError("Gumbel noise is a vector per position: use gumbel()")
        rows = self._uniforms_of_pass(draw)
        if rows is not None:
            rows = rows[:, int(purpose) - 1, :, 0]
            return rows.gather(1, self._inside(position).view(len(rows), -1)).view(position.shape)
        if self._last is None or self._last[0] is not position or self._last[1] is not draw:
            draws = _as_tensor(draw, position.device).expand(len(position))
            self._last = (position, draw, self._words(position, draws.view(-1, *(1,) * (position.dim() - 1))))
        return _unit(self._last[2][int(purpose) - 1])

    def sibling_uniform(self, position: Tensor, purpose: Purpose, draw: Tensor | int, siblings: int) -> Tensor:
        """[B, D, siblings] float32 in [0, 1) for the second and further candidates of the positions [B, D].

        ``draw`` is the number of the pass for all images, [] int64 or an int.
        """
        rows = self._uniforms_of_pass(draw, siblings)
        if rows is not None:
            return rows[:, int(purpose) - 1].gather(1, self._inside(position)[..., None].expand(-1, -1, siblings))
        lanes = torch.arange(1, siblings + 1, device=position.device)
        return _unit(self._words(position[..., None], _as_tensor(draw, position.device), lanes)[int(purpose) - 1])

    def _uniforms_of_pass(self, draw: Tensor | int, siblings: int = 0) -> Tensor | None:
        """[B, 4, N, siblings] uniforms of one pass from a table; None where there is none."""
        if isinstance(draw, int):
            self.prepare(draw)
        floats = 4 * _PASSES_AHEAD * self.positions * len(self.seeds) * max(siblings, 1)
        if not self._prepared or not 0 < floats <= _SMALL_TABLE or (isinstance(draw, Tensor) and draw.dim() > 0):
            return None
        if siblings not in self._tables:
            self._tables[siblings] = self._uniforms_ahead(self._block, siblings)
        if isinstance(draw, int):
            return self._tables[siblings][:, draw % _PASSES_AHEAD]
        if siblings not in self._of_pass:
            number = (draw % _PASSES_AHEAD).view(1)
            self._of_pass[siblings] = self._tables[siblings].index_select(1, number)[:, 0]
        return self._of_pass[siblings]

    def _words(self, position: Tensor, draw: Tensor, lane: Tensor | None = None) -> tuple[Tensor, ...]:
        """One block of four words per (position, draw, lane): one word for each purpose; lane 0 if none is given."""
        counter = (position, draw, torch.ones_like(draw), torch.zeros_like(draw) if lane is None else lane)
        return philox4x32(counter, self._key(position.dim()), self._constants)

    def _uniforms_ahead(self, block: int, siblings: int) -> Tensor:
        device = self.seeds.device
        position = torch.arange(self.positions, device=device).view(1, 1, -1, 1).expand(len(self.seeds), -1, -1, -1)
        draws = block * _PASSES_AHEAD + torch.arange(_PASSES_AHEAD, device=device).view(1, -1, 1, 1)
        lanes = torch.arange(1, siblings + 1, device=device) if siblings else torch.zeros_like(draws)
        return _unit(torch.stack(self._words(position, draws, lanes), dim=2))

    def gumbel(self, position: Tensor, vocabulary: int) -> Tensor:
        """[B, L, V] standard Gumbel noise of the absolute positions [B, L]; independent of pass and window."""
        if self._gumbel_table is None or self._gumbel_table.shape[-1] != vocabulary:
            floats, several = self.positions * len(self.seeds) * vocabulary, position.shape[1] > 1
            self._gumbel_ahead &= not several or floats <= _LARGE_TABLE
            if not self._gumbel_ahead or not 0 < floats <= (_LARGE_TABLE if several else _SMALL_TABLE):
                return self._gumbel(position, vocabulary)
            self._gumbel_table = self._whole_gumbel_table(vocabulary)
        return take(self._gumbel_table, self._inside(position))

    def _inside(self, position: Tensor) -> Tensor:
        """Padding beyond the image gets noise that is never used."""
        if self._clamped is None or self._clamped[0] is not position:
            self._clamped = (position, position.clamp(max=self.positions - 1))
        return self._clamped[1]

    def _whole_gumbel_table(self, vocabulary: int) -> Tensor:
        images, device = len(self.seeds), self.seeds.device
        table = torch.empty(images, self.positions, vocabulary, device=device)
        everywhere = torch.arange(self.positions, device=device).expand(images, -1)
        step = max(1, _CHUNK // (images * vocabulary))
        for part, noise in zip(everywhere.split(step, 1), table.split(step, 1), strict=True):
            noise.copy_(self._gumbel(part, vocabulary))
        return table

    def _gumbel(self, position: Tensor, vocabulary: int) -> Tensor:
        """The uniform keeps its resolution near zero (2**-32), so improbable tokens win as often as they should."""
        lanes = torch.arange((vocabulary + 3) // 4, device=position.device)
        zero = torch.zeros((), dtype=torch.int64, device=position.device)
        counter = (position[..., None], zero, zero, lanes)
        words = philox4x32(counter, self._key(position.dim() + 1), self._constants)
        words = torch.stack(words, dim=-1).flatten(-2)[..., :vocabulary]
        uniform = (words.to(torch.float32) + 0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)
        return -torch.log(-torch.log1p(-uniform))

    def _key(self, dims: int) -> tuple[Tensor, Tensor]:
        shape = (-1,) + (1,) * (dims - 1)
        return self.seeds[:, 0].view(shape), self.seeds[:, 1].view(shape)


def _as_tensor(draw: Tensor | int, device: torch.device) -> Tensor:
    return draw if isinstance(draw, Tensor) else torch.full((), draw, device=device)


def _unit(word: Tensor) -> Tensor:
    """32-bit words to float32 in [0, 1)."""
    return (word >> 8).to(torch.float32) * 2.0**-24
