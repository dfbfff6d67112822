"""For every image code, the codes whose vectors are nearest: made once per codebook, kept in memory, can be saved."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from csd_pipeline.targets.codebook import fingerprint, require_codebook

_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class NeighbourTable:
    """Nearest codes of every code.

    Args:
        neighbours: [V, K] int64, nearest first, a code itself left out.
        fingerprint: of the codebook it was made from.
    """

    neighbours: Tensor
    fingerprint: Tensor

    @classmethod
    def build(cls, codebook: Tensor, k: int) -> NeighbourTable:
        """Table of a codebook [V, D] with ``min(k, V - 1)`` neighbours; answered from memory the second time."""
        vectors = codebook.detach().float().cpu().contiguous()
        return _build(_Codebook(vectors, hashlib.sha256(vectors.numpy().tobytes()).hexdigest()), k)

    def check(self, codebook: Tensor, k: int) -> None:
        """Raises ValueError if it was made for another codebook or number of neighbours."""
        require_codebook(self.fingerprint, len(self.neighbours), codebook, "the saved neighbour table")
        wanted, found = min(k, len(codebook) - 1), self.neighbours.shape[1]
        if wanted != found:
            raise ValueError(
                f"the saved neighbour table has {found} neighbours a code, k={k} wants {wanted}; delete it"
            )

    def save(self, path: Path) -> None:
        tensors = {"neighbours": self.neighbours.to(torch.int32).cpu(), "fingerprint": self.fingerprint}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)

    @classmethod
    def load(cls, path: Path) -> NeighbourTable:
        """Raises ValueError if the file holds no table."""
        try:
            with safe_open(path, "pt") as file:
                return cls(file.get_tensor("neighbours").long(), file.get_tensor("fingerprint"))
        except SafetensorError as error:
            raise ValueError(f"{path.name} holds no neighbour table ({error}); delete it to have one made") from error


@dataclass(frozen=True)
class _Codebook:
    """Vectors that compare by their digest, to look tables up."""

    vectors: Tensor
    digest: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Codebook) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=4)
def _build(codebook: _Codebook, k: int) -> NeighbourTable:
    """On the CPU, without matrix products: the same table on every machine."""
    vectors = codebook.vectors
    count = min(k, len(vectors) - 1)
    rows = []
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        part = vectors[start : start + _ROWS_AT_ONCE]
        distance = torch.cdist(part, vectors, compute_mode="donot_use_mm_for_euclid_dist")
        own = torch.arange(len(part))
        distance[own, start + own] = torch.inf
        rows.append(distance.topk(count, largest=False).indices)
    return NeighbourTable(torch.cat(rows), fingerprint(vectors))
