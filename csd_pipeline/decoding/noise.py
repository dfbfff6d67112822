"""Counter-based noise: (image seed, absolute position, purpose, draw) -> the same numbers everywhere.

A value depends on nothing but its index, so it is the same on every device, batch size, window and order of
evaluation. That is what makes image ``i`` of a batch equal its single run, and the Gumbel-coupled exact mode equal
plain decoding. The numbers are those of :mod:`Philox <csd_pipeline.decoding.philox>`.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from csd_pipeline.names import SEEDS

from .indexing import count_up, take
from .philox import MASK, philox4x32

# Noise made ahead and kept is the same numbers for fewer operations; what it may take, in floats of a whole batch:
_SMALL_TABLE = 2**23  # 32 MiB: always worth it
_LARGE_TABLE = 2**27  # 512 MiB: only for requests of several positions, which come back to each of them (Gumbel noise)
_CHUNK = 2**20  # floats of a table made at once; bounds the memory its making takes
_PASSES_AHEAD = 16
_NOT_MADE = -1  # no block of passes


class Purpose(IntEnum):
    """What a random number is used for; different purposes never share a number."""

    GUMBEL = 0  # one vector per position: the noise of plain decoding
    VERIFY = 1  # accept or reject a draft
    RESIDUAL = 2  # the token drawn after a rejection
    REDRAW = 3  # a new draft from the target law of this pass
    ENTRY = 4  # a draft entering the window


def seed_words(seeds: list[int], device: torch.device | str = "cpu") -> Tensor:
    """[B, 2] int64: low and high 32-bit word of each 64-bit seed. Raises ValueError outside 0 .. 2**64 - 1."""
    for seed in seeds:
        if not 0 <= seed < SEEDS:
            raise ValueError(f"seed {seed} is outside 0 .. 2**64 - 1; give a non-negative 64-bit integer")
    return torch.tensor([[s & MASK, s >> 32] for s in seeds], dtype=torch.int64, device=device)


def kept_bytes(images: int, positions: int, vocabulary: int) -> int:
    """Most bytes :class:`IndexedNoise` keeps of B images, the further candidates of a tree left out."""
    gumbel, uniforms = images * positions * vocabulary, images * positions * 4 * _PASSES_AHEAD
    return 4 * (gumbel * (gumbel <= _LARGE_TABLE) + uniforms * (uniforms <= _SMALL_TABLE))


class IndexedNoise:
    """Noise of a batch of images.

    Args:
        seeds: [B, 2] int64 from :func:`seed_words`.
        positions: number of positions an image has, if known; lets noise be made ahead and kept where that pays.
    """

    def __init__(self, seeds: Tensor, positions: int = 0):
        self.seeds, self.positions = seeds, positions
        self._gumbel_table: Tensor | None = None  # [B, N, V]
        self._uniforms_ahead = True
        self._gumbel_ahead = True  # False once a batch was too large: a table made late in its run would not pay
        self._tables: dict[int, Tensor] = {}  # by number of siblings: [B, passes, 4, N, siblings] uniforms
        self._blocks = [_NOT_MADE] * len(seeds)  # which passes the tables of each image are of
        self._prepared = False  # whether the numbers of a pass are known
        self._of_pass: dict[int, Tensor] = {}  # of the prepared pass, [B, 4, N, siblings]
        self._last: tuple | None = None
        self._gumbel_of: tuple[Tensor, Tensor] | None = None  # the positions last asked for, and their noise
        self._all_inside = False  # no position beyond the image will be asked for
        self._draw: int | None = None  # number of the prepared pass, where it is known and the same for all images
        self._clamped: tuple[Tensor, Tensor] | None = None  # the positions last asked for, and those inside the image

    def keep(self, rows: Tensor) -> IndexedNoise:
        """The noise of the images ``rows`` (int64 indices) only."""
        kept = IndexedNoise(self.seeds[rows], self.positions)
        kept._uniforms_ahead, kept._gumbel_ahead = self._uniforms_ahead, self._gumbel_ahead
        if self._gumbel_table is not None:
            kept._gumbel_table = self._gumbel_table[rows]
        return kept

    def admit(self, slots: list[int], newcomers: IndexedNoise) -> None:
        """Put the noise of other images in the place of the images ``slots``, without moving any storage."""
        self.forget_pass()
        for row, slot in enumerate(slots):
            self.seeds[slot].copy_(newcomers.seeds[row])
            self._blocks[slot] = _NOT_MADE  # the next pass is prepared before it runs
            if self._gumbel_table is None:
                continue
            if newcomers._gumbel_table is None:
                self._fill_gumbel_table(slice(slot, slot + 1))
            else:
                self._gumbel_table[slot].copy_(newcomers._gumbel_table[row])

    def make_within_passes(self) -> None:
        """Make nothing ahead any more: for passes that fuse the operations of making it where it is used."""
        self._uniforms_ahead = self._gumbel_ahead = False

    def prepare(self, draws: list[int], full: bool = False) -> None:
        """Called by the host before a pass: makes uniforms ahead where that pays.

        Args:
            draws: number of the pass, of each image. Until the next call a tensor [B] of the same numbers may be given
                as ``draw``: a pass need not know them.
            full: as the pass (:class:`.one_pass.DecodingPass`): it asks for no position beyond the image, and what is
                prepared is this very pass and not others that replay it.
        """
        self.forget_pass()
        self._prepared, self._all_inside = True, full
        self._draw = draws[0] if full and len(set(draws)) == 1 else None
        if not self._uniforms_ahead:
            return
        blocks = [draw // _PASSES_AHEAD for draw in draws]
        stale = [row for row, block in enumerate(blocks) if block != self._blocks[row]]
        self._blocks = blocks
        for siblings, table in self._tables.items():
            self._refill(table, siblings, stale)

    def forget_pass(self) -> None:
        """Called when a pass ends, as a traced one would hand out what is remembered of it, and before another."""
        self._of_pass, self._last, self._gumbel_of, self._clamped = {}, None, None, None

    def uniform(self, position: Tensor, purpose: Purpose, draw: Tensor | int) -> Tensor:
        """Float32 in [0, 1), shaped like ``position`` [B, ...].

        Args:
            position: absolute positions; must not be changed in place (a repeated request is answered from memory).
            purpose: any but GUMBEL.
            draw: number of the pass: [B] int64, or an int for all images.
        """
        if purpose is Purpose.GUMBEL:
            raise ValueError("Gumbel noise is a vector per position: use gumbel()")
        if self._last is None or self._last[0] is not position or self._last[1] is not draw:
            self._last = (position, draw, self._uniforms_of_every_purpose(position, draw))
        return self._last[2][int(purpose) - 1]

    def _uniforms_of_every_purpose(self, position: Tensor, draw: Tensor | int) -> tuple[Tensor, ...]:
        rows = self._uniforms_of_pass(draw)
        if rows is None:
            draws = _as_tensor(draw, position.device).expand(len(position))
            return tuple(map(_unit, self._words(position, draws.view(-1, *(1,) * (position.dim() - 1)))))
        index = self._inside(position).view(len(rows), 1, -1).expand(-1, rows.shape[1], -1)
        return rows[..., 0].gather(2, index).view(len(rows), -1, *position.shape[1:]).unbind(1)

    def sibling_uniform(self, position: Tensor, purpose: Purpose, draw: Tensor | int, siblings: int) -> Tensor:
        """[B, D, siblings] float32 in [0, 1) for the second and further candidates of the positions [B, D]."""
        rows = self._uniforms_of_pass(draw, siblings)
        if rows is not None:
            return rows[:, int(purpose) - 1].gather(1, self._inside(position)[..., None].expand(-1, -1, siblings))
        lanes = torch.arange(1, siblings + 1, device=position.device)
        draws = _as_tensor(draw, position.device).view(-1, 1, 1)
        return _unit(self._words(position[..., None], draws, lanes)[int(purpose) - 1])

    def _uniforms_of_pass(self, draw: Tensor | int, siblings: int = 0) -> Tensor | None:
        """[B, 4, N, siblings] uniforms of one pass from a table; None where there is none."""
        if isinstance(draw, int):
            self.prepare([draw] * len(self.seeds))
        floats = 4 * _PASSES_AHEAD * self.positions * len(self.seeds) * max(siblings, 1)
        if not self._uniforms_ahead or not self._prepared or not 0 < floats <= _SMALL_TABLE:
            return None
        if siblings not in self._tables:
            shape = (len(self.seeds), _PASSES_AHEAD, 4, self.positions, max(siblings, 1))
            self._tables[siblings] = torch.empty(shape, device=self.seeds.device)
            self._refill(self._tables[siblings], siblings, range(len(self.seeds)))
        table = self._tables[siblings]
        known = draw if isinstance(draw, int) else self._draw
        if known is not None:
            return table[:, known % _PASSES_AHEAD]
        if siblings not in self._of_pass:
            number = draw % _PASSES_AHEAD
            if len(table) > 1:
                number = number + _PASSES_AHEAD * count_up(len(table), number.device)
            self._of_pass[siblings] = table.flatten(0, 1).index_select(0, number)
        return self._of_pass[siblings]

    def _refill(self, table: Tensor, siblings: int, rows: list[int] | range) -> None:
        """Write the uniforms of the images ``rows`` for their blocks; in place: a captured pass reads this storage."""
        blocks = {self._blocks[row] for row in rows}
        if len(rows) == len(table) and len(blocks) == 1:
            table.copy_(self._make_uniforms(slice(None), blocks.pop(), siblings))
            return
        for row in rows:  # slices, since indices would have to be copied to the device
            one = slice(row, row + 1)
            table[one].copy_(self._make_uniforms(one, self._blocks[row], siblings))

    def _make_uniforms(self, images: slice, block: int, siblings: int) -> Tensor:
        seeds = self.seeds[images]
        device = seeds.device
        position = torch.arange(self.positions, device=device).view(1, 1, -1, 1).expand(len(seeds), -1, -1, -1)
        draws = block * _PASSES_AHEAD + torch.arange(_PASSES_AHEAD, device=device).view(1, -1, 1, 1)
        lanes = torch.arange(1, siblings + 1, device=device) if siblings else torch.zeros_like(draws)
        return _unit(torch.stack(self._words(position, draws, lanes, seeds), dim=2))

    def _words(
        self, position: Tensor, draw: Tensor, lane: Tensor | None = None, seeds: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """One block of four words per (position, draw, lane): one word for each purpose; lane 0 if none is given."""
        counter = (position, draw, torch.ones_like(draw), torch.zeros_like(draw) if lane is None else lane)
        return philox4x32(counter, _key(self.seeds if seeds is None else seeds, position.dim()))

    def gumbel(self, position: Tensor, vocabulary: int) -> Tensor:
        """[B, L, V] standard Gumbel noise of the absolute positions [B, L]; independent of pass and window.

        ``position`` must not be changed in place: a repeated request is answered from memory.
        """
        if self._gumbel_of is None or self._gumbel_of[0] is not position or self._gumbel_of[1].shape[-1] != vocabulary:
            self._gumbel_of = (position, self._gumbel_at(position, vocabulary))
        return self._gumbel_of[1]

    def _gumbel_at(self, position: Tensor, vocabulary: int) -> Tensor:
        if not self.make_gumbel_ahead(vocabulary, several=position.shape[1] > 1):
            return self._gumbel(position, vocabulary, self.seeds)
        return take(self._gumbel_table, self._inside(position))

    def make_gumbel_ahead(self, vocabulary: int, several: bool = True) -> bool:
        """Make the Gumbel noise of all positions, unless it was made before or does not pay.

        Args:
            vocabulary: V.
            several: it will be asked for several positions at once, and so for each of them in several passes.

        Returns:
            whether it is there.
        """
        if self._gumbel_table is not None and self._gumbel_table.shape[-1] == vocabulary:
            return True
        floats = self.positions * len(self.seeds) * vocabulary
        self._gumbel_ahead &= not several or floats <= _LARGE_TABLE
        if not self._gumbel_ahead or not 0 < floats <= (_LARGE_TABLE if several else _SMALL_TABLE):
            return False
        self._gumbel_table = torch.empty(len(self.seeds), self.positions, vocabulary, device=self.seeds.device)
        self._fill_gumbel_table(slice(None))
        return True

    def _inside(self, position: Tensor) -> Tensor:
        """Padding beyond the image gets noise that is never used."""
        if self._all_inside:
            return position
        if self._clamped is None or self._clamped[0] is not position:
            self._clamped = (position, position.clamp(max=self.positions - 1))
        return self._clamped[1]

    def _fill_gumbel_table(self, images: slice) -> None:
        table, seeds = self._gumbel_table[images], self.seeds[images]
        everywhere = torch.arange(self.positions, device=seeds.device).expand(len(seeds), -1)
        step = max(1, _CHUNK // (len(seeds) * table.shape[-1]))
        for part, noise in zip(everywhere.split(step, 1), table.split(step, 1), strict=True):
            noise.copy_(self._gumbel(part, table.shape[-1], seeds))

    def _gumbel(self, position: Tensor, vocabulary: int, seeds: Tensor) -> Tensor:
        """The uniform keeps its resolution near zero (2**-32), so improbable tokens win as often as they should."""
        lanes = torch.arange((vocabulary + 3) // 4, device=position.device)
        zero = torch.zeros((), dtype=torch.int64, device=position.device)
        counter = (position[..., None], zero, zero, lanes)
        words = philox4x32(counter, _key(seeds, position.dim() + 1))
        words = torch.stack([word.to(torch.float32) for word in words], dim=-1).flatten(-2)[..., :vocabulary]
        uniform = (words + 0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)
        return uniform.neg_().log1p_().neg_().log_().neg_()


def _key(seeds: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    shape = (-1,) + (1,) * (dims - 1)
    return seeds[:, 0].view(shape), seeds[:, 1].view(shape)


def _as_tensor(draw: Tensor | int, device: torch.device) -> Tensor:
    return draw if isinstance(draw, Tensor) else torch.full((1,), draw, device=device)


def _unit(word: Tensor) -> Tensor:
    """32-bit words to float32 in [0, 1)."""
    return (word >> 8).to(torch.float32) * 2.0**-24
