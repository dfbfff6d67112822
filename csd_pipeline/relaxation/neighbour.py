"""LANTERN's rule: a draft is judged with the target probability of the codes that look like it."""

from __future__ import annotations

from pathlib import Path

from diffusers.configuration_utils import register_to_config
from torch import Tensor, minimum, nn, where, zeros_like

from csd_pipeline.checks import require_at_least, require_between, require_integer
from csd_pipeline.decoding.indexing import where_it_was
from csd_pipeline.decoding.window import Window

from .base import Relaxation
from .neighbour_table import NeighbourTable
from .saved_file import SavedFile

_AT_ONCE = 16  # neighbours gathered together: bounds the memory to 16 times that of the laws


class NeighbourRelaxation(SavedFile, Relaxation):
    """``f(x) = min(1, (p(x) + c(x)) / q(x))`` with ``c`` the target mass of nearest codes (LANTERN, arXiv 2410.03355).

    ``c(x) = p(n_1) + ... + p(n_m)`` over the codes ``n_1, n_2, ...`` nearest to ``x`` in the codebook, with the largest
    ``m <= k`` whose sum stays within the bound: ``delta`` (LANTERN), or ``delta p(x)`` (LANTERN++, arXiv 2502.06352,
    whose lambda is ``1 + delta``). The table of nearest codes is made from the target's codebook before the first pass.

    Args:
        k: most neighbours a code may have, >= 0; 0 is exact. The papers use 1000 (LANTERN) and 10 (LANTERN++).
        delta: bound on the mass taken from neighbours, >= 0; 0 is exact. At most 1 unless ``relative``.
        relative: bound the mass by ``delta p(x)``, not by ``delta``.
        keep_table: save the table, once a run has made it, beside the config; what is loaded from there refuses a
            model with another codebook.
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: ``k`` no integer >= 0, ``delta`` out of range, or a saved table met by another codebook.
    """

    source = "arXiv 2410.03355, 2502.06352"
    departures = (
        "residual [p - q f]+, which is optimal (the released loops drop the neighbours from q or from p instead); "
        "Jacobi drafts instead of an EAGLE tree; lambda of LANTERN++ is read as lambda - 1 times p(x), as in the "
        "released code; the support guard refuses drafts of target probability 0."
    )
    strength = "delta"
    file_name = "neighbours.safetensors"

    @register_to_config
    def __init__(
        self,
        k: int = 10,
        delta: float = 1.0,
        relative: bool = True,
        keep_table: bool = False,
        support_guard: bool = True,
        relax_fresh: bool = False,
    ):
        require_integer("k", k, 0)
        if relative:
            require_at_least("delta", delta, 0.0)
        else:
            require_between("delta", delta, 0.0, 1.0)
        self._table: NeighbourTable | None = None  # of the last target
        self._saved = False  # read from beside the config, so good for one codebook only
        self._neighbours: Tensor | None = None  # [V, K] int64 on the device of the target

    @property
    def exact(self) -> bool:
        return self.config.k == 0 or self.config.delta == 0

    def prepare(self, adapter) -> None:
        codebook = adapter.codebook
        if self._saved:
            self._table.check(codebook, self.config.k)
        else:
            self._table = NeighbourTable.build(codebook, self.config.k)
        self._neighbours = where_it_was(self._neighbours, self._table.neighbours.to(codebook.device, copy=True))

    def write_file(self, path: Path) -> None:
        if self.config.keep_table and self._table is not None:
            self._table.save(path)

    def read_file(self, path: Path) -> None:
        self._table, self._saved = NeighbourTable.load(path), True

    def accepted_mass(self, window: Window) -> Tensor:
        return minimum(window.q, window.p + self._neighbour_mass(window.p))

    def _neighbour_mass(self, p: Tensor) -> Tensor:
        """``c`` [B, L, V]; forced marks, which have no vector, have no neighbours either."""
        codes = p[..., : len(self._neighbours)]
        bound = self.config.delta * codes if self.config.relative else self.config.delta
        total, taken = zeros_like(codes)[..., None], zeros_like(codes)
        for some in self._neighbours.split(_AT_ONCE, dim=1):
            sums = total + codes[..., some].cumsum(-1)  # they never fall, so the largest within the bound is the last
            taken = where(sums <= (bound[..., None] if self.config.relative else bound), sums, taken[..., None]).amax(
                -1
            )
            total = sums[..., -1:]
        return nn.functional.pad(taken, (0, p.shape[-1] - codes.shape[-1]))
