"""SJD-PV's rule: drafts that form a known phrase are judged as one."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn, where

from csd_pipeline.checks import require_choice
from csd_pipeline.decoding.indexing import where_it_was
from csd_pipeline.decoding.window import Window

from .joint import JointRelaxation, same_group
from .phrase_library import PhraseLibrary, contains, keys_of, require_length
from .saved_file import SavedFile

AGGREGATES = ("product", "geomean")


class PhraseRelaxation(SavedFile, JointRelaxation):
    """Drafts that form a phrase of a library are accepted together (SJD-PV, arXiv 2603.06666).

    The window is cut from the left into the longest phrases known; they never cross the end of a row. A phrase is
    accepted with probability ``min(1, rho)``, ``rho`` the product of its ratios ``p/q`` or their geometric mean.
    After a failure its drafts are judged one by one with new uniforms, and the next token comes from ``[p - q]+``. A
    draft in no phrase is judged by itself. Phrases are collected by `csd phrases`.

    Args:
        library: file of phrases, for the codebook of the target; it is saved beside the config too.
        max_len: longest phrase used, 1 to 4; 1 is exact.
        aggregate: "product" or "geomean" (accepts more).
        support_guard: never accept a token the target gives probability 0.
        relax_fresh: also relax drafts that only just entered the window.

    Raises:
        ValueError: an unknown ``aggregate``, ``max_len`` out of range, no library, or one for another codebook.
    """

    source = "arXiv 2603.06666, its abstract"
    departures = (
        "only the abstract was readable: the choice of phrases (pointwise mutual information), the segmentation, the "
        "aggregate and the fall-back are this project's; drafts fresh in the window are judged by themselves; the "
        "support guard refuses drafts of target probability 0."
    )
    file_name = "phrases.safetensors"

    @register_to_config
    def __init__(
        self,
        library: str = "",
        max_len: int = 3,
        aggregate: str = "product",
        support_guard: bool = True,
        relax_fresh: bool = False,
    ):
        require_length(max_len, 1)
        require_choice("aggregate", aggregate, AGGREGATES)
        self._library: PhraseLibrary | None = None
        self._known: dict[int, Tensor] = {}  # keys of the phrases of every length, on the device of the target
        self._columns = 0

    @property
    def exact(self) -> bool:
        return self.config.max_len == 1

    def prepare(self, adapter) -> None:
        if self.exact:
            return
        if self._library is None:
            if not self.config.library:
                raise ValueError("the rule 'phrase' needs library=FILE; `csd phrases -o FILE` makes one for a model")
            self._library = PhraseLibrary.load(Path(self.config.library).expanduser())
        library, codebook = self._library, adapter.codebook
        library.check(codebook)
        phrases = {n: ids for n, ids in library.phrases.items() if n <= self.config.max_len}
        known = {n: keys_of(ids, n, library.codes)[:, 0].to(codebook.device) for n, ids in phrases.items()}
        self._known = {n: where_it_was(self._known.get(n), keys) for n, keys in known.items()}
        self._columns = adapter.grid.columns

    def write_file(self, path: Path) -> None:
        if self._library is not None:
            self._library.save(path)

    def read_file(self, path: Path) -> None:
        self._library = PhraseLibrary.load(path)

    def group_starts(self, window: Window, alone: Tensor) -> Tensor:
        size = torch.ones_like(window.drafts)  # of the longest phrase that starts at each slot
        room = self._columns - window.positions[:, :-1] % self._columns
        for length, known in self._known.items():
            if length <= size.shape[1]:
                whole = ~alone.unfold(1, length, 1).any(-1)
                hit = contains(known, keys_of(window.drafts, length, self._library.codes)) & whole
                hit = nn.functional.pad(hit, (0, length - 1)) & (room >= length)
                size = where(hit, length, size)
        return reached(size)

    def log_survival(self, window: Window, group: Tensor) -> Tensor:
        together = same_group(group)
        log_ratio = (window.p_draft / window.q_draft).log()[:, None, :]
        joint = where(together, log_ratio, 0.0).sum(-1)
        if self.config.aggregate == "geomean":
            joint = joint / together.sum(-1)
        joint = joint.clamp(max=0.0).exp()
        singly = where(together.tril(), log_ratio.clamp(max=0.0), 0.0).sum(-1).exp()
        return (joint + (1 - joint) * singly).log()


def reached(size: Tensor) -> Tensor:
    """[B, L] bool, the slots met when one starts at slot 0 and goes ``size`` [B, L] >= 1 slots on from each.

    A slot is met if it is slot 0 or some slot that is met leads to it: one triangular system, solved exactly because
    every count in it is 0 or 1.
    """
    length = size.shape[1]
    place = torch.arange(length, device=size.device)
    leads = (place[:, None] == (place + size)[:, None, :]).float()  # [B, to, from]
    origin = (place == 0).float().expand(len(size), length)[..., None]
    identity = torch.eye(length, device=size.device)
    return torch.linalg.solve_triangular(identity - leads, origin, upper=False, unitriangular=True)[..., 0] > 0.5
