"""Runs of image codes that occur together more often than chance has them, found in token grids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from csd_pipeline.checks import require_between, require_integer
from csd_pipeline.targets.codebook import fingerprint, require_codebook

LENGTHS = (2, 3, 4)


@dataclass(frozen=True)
class PhraseLibrary:
    """Phrases by length, and the codebook their codes belong to.

    Args:
        phrases: {n: [K, n] int64}, in ascending order, for n = 2, 3, ...
        counts: {n: [K] int64}, how often each occurs.
        codes: V, number of codes of the codebook.
        fingerprint: of the codebook.
    """

    phrases: dict[int, Tensor]
    counts: dict[int, Tensor]
    codes: int
    fingerprint: Tensor

    @classmethod
    def collect(
        cls, grids: Tensor, codebook: Tensor, max_len: int = 3, min_count: int = 50, npmi: float = 0.3
    ) -> PhraseLibrary:
        """Phrases within the rows of token grids [M, rows, columns].

        A pair of neighbours qualifies when it occurs at least ``min_count`` times and its normalised pointwise mutual
        information ``ln(p_xy / (p_x p_y)) / -ln p_xy`` is at least ``npmi`` (``p_x``, ``p_y``: shares of the codes
        among first and second ones); a longer phrase when all its pairs do and
        it occurs ``min_count`` times itself.

        Args:
            codebook: [V, D] of the target that the tokens belong to.
            max_len: longest phrase, 2 to 4.
            min_count: >= 1.
            npmi: in [-1, 1]; 1 means that the two codes never occur apart.

        Raises:
            ValueError: a number out of range, no grids, or tokens that are no codes of the codebook.
        """
        codes = len(codebook)
        require_length(max_len, 2, codes)
        require_integer("min_count", min_count, 1)
        require_between("npmi", npmi, -1.0, 1.0)
        if grids.dim() != 3 or grids.numel() == 0 or grids.is_floating_point():
            raise ValueError(f"token grids must be integers [images, rows, columns], got shape {tuple(grids.shape)}")
        if int(grids.min()) < 0 or int(grids.max()) >= codes:
            raise ValueError(f"the token grids hold ids outside 0 .. {codes - 1}; they belong to another model")
        grids = grids.long().cpu()
        pairs, phrases, counts = None, {}, {}
        for length in range(2, min(max_len, grids.shape[-1]) + 1):
            keys, count = keys_of(grids, length, codes).flatten().unique(return_counts=True)
            found = codes_of(keys, length, codes)
            good = count >= min_count
            if pairs is None:
                good &= _npmi(found, count) >= npmi
                pairs = keys[good]
            else:
                good &= contains(pairs, keys_of(found, 2, codes)).all(-1)
            phrases[length], counts[length] = found[good], count[good]
        return cls(phrases, counts, codes, fingerprint(codebook))

    def check(self, codebook: Tensor) -> None:
        """Raises ValueError if its phrases belong to another codebook."""
        require_codebook(self.fingerprint, self.codes, codebook, "the phrase library")

    def save(self, path: Path) -> None:
        tensors = {f"phrases_{n}": ids.to(torch.int32) for n, ids in self.phrases.items()}
        tensors |= {f"counts_{n}": count for n, count in self.counts.items()}
        tensors |= {"fingerprint": self.fingerprint, "codes": torch.tensor(self.codes)}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)

    @classmethod
    def load(cls, path: Path) -> PhraseLibrary:
        """Raises ValueError if there is no such file, or none that holds a library."""
        if not path.is_file():
            raise ValueError(f"no phrase library {str(path)!r}; `csd phrases -o {path.name}` makes one")
        try:
            with safe_open(path, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
            lengths = [n for n in LENGTHS if f"phrases_{n}" in tensors]
            phrases = {n: tensors[f"phrases_{n}"].long() for n in lengths}
            counts = {n: tensors[f"counts_{n}"] for n in lengths}
            return cls(phrases, counts, int(tensors["codes"]), tensors["fingerprint"])
        except (SafetensorError, KeyError) as error:
            raise ValueError(f"{path.name} holds no phrase library ({error}); `csd phrases` makes one") from error


def require_length(max_len: int, low: int, codes: int = 0) -> None:
    """Raise ValueError unless phrases of ``max_len`` codes are supported and one of ``codes`` codes fits into a key."""
    require_integer("max_len", max_len, low)
    if max_len > LENGTHS[-1] or codes**max_len >= 2**63:
        raise ValueError(f"max_len must be {low} to {LENGTHS[-1]} (3 above 55108 codes), got {max_len}")


def keys_of(tokens: Tensor, length: int, codes: int) -> Tensor:
    """[..., T] tokens -> [..., T - length + 1] int64, one number per run of ``length`` neighbours."""
    place = codes ** torch.arange(length - 1, -1, -1, device=tokens.device)
    return (tokens.unfold(-1, length, 1) * place).sum(-1)


def codes_of(keys: Tensor, length: int, codes: int) -> Tensor:
    """[K] keys -> [K, length] tokens, the inverse of :func:`keys_of`."""
    return keys[:, None] // codes ** torch.arange(length - 1, -1, -1) % codes


def contains(known: Tensor, keys: Tensor) -> Tensor:
    """Bool, shaped like ``keys``: is it one of the ascending ``known`` [K]?"""
    if len(known) == 0:
        return torch.zeros_like(keys, dtype=torch.bool)
    return known[torch.searchsorted(known, keys).clamp(max=len(known) - 1)] == keys


def _npmi(pairs: Tensor, count: Tensor) -> Tensor:
    """[K] normalised pointwise mutual information of all pairs [K, 2] that occur ``count`` [K] times, in [-1, 1]."""
    together = count.double() / count.sum()
    first, second = (torch.bincount(codes, together)[codes] for codes in pairs.unbind(-1))
    return torch.where(together < 1, (together / (first * second)).log() / -together.log(), 1.0)
