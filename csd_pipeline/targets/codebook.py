"""Telling one codebook from another: what was made for one must not be used with a second."""

from __future__ import annotations

import torch
from torch import Tensor

_ROWS = 64  # a fingerprint holds this many code vectors, evenly spaced
_TOLERANCE = 0.02  # of their root mean square: half precision moves an entry by less, another codebook by far more


def fingerprint(codebook: Tensor) -> Tensor:
    """[<= 64, D] float32 on the CPU: some vectors of a codebook [V, D], the same whatever dtype the model runs in."""
    rows = torch.linspace(0, len(codebook) - 1, min(_ROWS, len(codebook))).round().long()
    return codebook.detach()[rows.to(codebook.device)].float().cpu()


def require_codebook(kept: Tensor, codes: int, codebook: Tensor, what: str) -> None:
    """Refuse to use ``what`` (a name for the message) with a codebook it was not made for.

    Args:
        kept: fingerprint of the codebook it was made for.
        codes: number of its codes.
        codebook: [V, D] of the target.

    Raises:
        ValueError: another number of codes, or other vectors.
    """
    if codes != len(codebook):
        raise ValueError(f"{what} was made for {codes} codes, this model has {len(codebook)}; make one for this model")
    own = fingerprint(codebook)
    tolerance = _TOLERANCE * own.square().mean().sqrt()
    if kept.shape != own.shape or not bool((kept - own).abs().max() <= tolerance):
        raise ValueError(f"{what} was made for another codebook than this model's; make one for this model")
