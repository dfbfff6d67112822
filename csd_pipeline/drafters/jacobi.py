"""Jacobi drafting: the target drafts for itself, from its own laws of the previous pass; no second model."""

from __future__ import annotations

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor

from csd_pipeline.checks import require_at_least, require_between, require_choice, require_integer, require_positive
from csd_pipeline.decoding.indexing import admit_rows, at_drafts
from csd_pipeline.decoding.noise import Purpose
from csd_pipeline.decoding.sampling import draw_by_inverse_cdf, draw_by_race, force_tokens, residual
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.tree import DraftTree, extra_nodes
from csd_pipeline.decoding.verification import Verification
from csd_pipeline.decoding.window import Window

from .base import Drafter, DraftRun
from .entry import ENTRIES, EntryLaws
from .growth_guide import GrowthGuide, fit, slide
from .law_ring import LawRing
from .siblings import Siblings, check_tree_size
from .window_choice import AUTO, WINDOWS

REDRAWS = ("fresh", "coupled", "gumbel")
GUIDES = ("none", "growth")
RECORDS = ("exact", "lossy")


class JacobiDrafter(Drafter):
    """Speculative Jacobi decoding (SJD, arXiv 2410.01699) and its coupled forms (arXiv 2510.24211).

    After a pass the drafts behind the first rejection are drawn again from the target laws ``p`` of that pass, which
    become their recorded laws. Departures from released loops: the recorded law is always the law really used (kept
    tokens of a coupled redraw record ``p``), and every image advances by its own length.

    A tree (SJD-PAC, arXiv 2603.18599) tries several candidates at the first positions. Departures from the release:
    candidates are tested in the order they were drawn, each against what the earlier ones left of the target law, which
    is exact (taking the longest path that survives is not), and all nodes of a level share their candidates.

    A guide (SJD-VP, arXiv 2603.27115) draws from a law ``g`` instead, which favours tokens whose probability has grown
    from pass to pass. The formula of ``g`` is this project's: the paper's was not at hand.

    Args:
        window: tokens per target forward, >= 1: one committed token and ``window - 1`` drafts. 1 is plain decoding. In
            Python and on the command line the word auto lets the pipeline choose it in every call, from the measured
            time of a forward and what passes of each width committed so far; recipes hold the number.
        redraw: ``"fresh"`` independent draws (SJD); ``"coupled"`` keeps a draft as often as its new law allows
            (maximal coupling); ``"gumbel"`` position-indexed noise, which makes an exact run return the very picture
            of plain decoding; ``"auto"`` lets the pipeline choose one of these in every call, by the drafts accepted so
            far (recipes hold the one it chose; outside a pipeline it is coupled).
        init: law of drafts entering the window: ``"uniform"``; the recorded target law of the position to the left
            (``"left"``), above (``"above"``) or the mean of both (``"mean"``); ``"left-copy"`` / ``"above-copy"``
            repeat a token (point mass). A neighbour that has no law yet is replaced by the nearest position to the
            left or above that has one; in the first row, where nothing is above, the newest token is repeated.
        guide: ``"none"`` draws from ``p``; ``"growth"`` from ``(p + growth_weight m) / (1 + growth_weight sum m)``,
            where ``m`` sums up how much a token's probability has grown in consecutive passes.
        growth_weight: >= 0; 0 is no guide. More than about 1 costs acceptance.
        growth_decay: in (0, 1], what is left of earlier growth after a pass.
        growth_share: in (0, 1], share of the possible tokens, the most probable ones, that are favoured.
        record: law recorded for guided drafts: ``"exact"`` is the one they were drawn from, so that decoding stays
            exact; ``"lossy"`` is ``p``, which accepts growing tokens more often and changes the output law. The ledger
            of drift does not see that change.
        tree_depth: 0 to 4 levels of a tree of candidates at the first positions of the window, where each draft gets
            siblings drawn without replacement from its law; the drafts behind follow the first ones. 0 is no tree.
            Needs a window of more than ``tree_depth`` tokens and the exact rule.
        tree_width: 1 to 8 candidates of every node; 1 is no tree. A tree adds nodes to every forward, 81 with
            ``tree_width`` 4 and ``tree_depth`` 3, and may add 400.

    Raises:
        ValueError: a number outside its range, an unknown ``redraw``, ``init``, ``guide`` or ``record``, or a tree
            with more levels than the window has drafts, with too many nodes or with an automatic window; or an
            automatic redraw with a lossy record, whose law depends on the redraw.
    """

    source = "arXiv 2410.01699, 2510.24211, 2603.27115, 2603.18599"

    @register_to_config
    def __init__(
        self,
        window: int | str = 16,
        redraw: str = "coupled",
        init: str = "mean",
        guide: str = "none",
        growth_weight: float = 1.0,
        growth_decay: float = 0.8,
        growth_share: float = 0.1,
        record: str = "exact",
        tree_depth: int = 0,
        tree_width: int = 4,
    ):
        if window != AUTO:
            require_integer("window", window, 1)
        require_choice("redraw", redraw, (*REDRAWS, AUTO))
        require_choice("init", init, ENTRIES)
        require_choice("guide", guide, GUIDES)
        require_at_least("growth_weight", growth_weight, 0)
        for name, value in (("growth_decay", growth_decay), ("growth_share", growth_share)):
            require_positive(name, value)
            require_between(name, value, 0, 1)
        require_choice("record", record, RECORDS)
        if redraw == AUTO and record == "lossy" and self.guided:
            raise ValueError(
                "redraw=auto exchanges redraws for speed, but with record=lossy each draws another law; choose a "
                "redraw, or record=exact"
            )
        check_tree_size(tree_width, tree_depth, window)

    @property
    def window(self) -> int:
        """Tokens per target forward; the largest there may be, as long as an automatic one is not chosen."""
        return WINDOWS[-1] if self.config.window == AUTO else self.config.window

    @property
    def extra_tokens(self) -> int:
        return extra_nodes(self.config.tree_width, self.config.tree_depth)

    @property
    def shares_noise(self) -> bool:
        return self.config.redraw == "gumbel"

    @property
    def guided(self) -> bool:
        """Whether drafts are drawn from any other law than ``p``."""
        return self.config.guide != "none" and self.config.growth_weight > 0

    @property
    def exact(self) -> bool:
        return not self.guided or self.config.record == "exact" or self.config.window == 1

    def begin(self, state: DecodingState) -> JacobiRun:
        config = self.config
        images, window = len(state.counts), min(self.window, state.grid.tokens)
        entry, guide = EntryLaws(config.init, state, window), None
        if self.guided:
            laws = entry.uniform.new_zeros(images, window, state.vocabulary)
            guide = GrowthGuide(config.growth_weight, config.growth_decay, config.growth_share, laws)
        siblings = None
        if self.extra_tokens:
            siblings = Siblings(config.tree_width, config.tree_depth, by_race=self.shares_noise)
        redraw = "coupled" if config.redraw == AUTO else config.redraw
        return JacobiRun(self.window, redraw, entry, guide, config.record, siblings)


class JacobiRun(DraftRun):
    """Drafts of the last window that survived, and the position up to which there are any."""

    def __init__(
        self,
        window: int,
        redraw: str,
        entry: EntryLaws,
        guide: GrowthGuide | None = None,
        record: str = "exact",
        siblings: Siblings | None = None,
    ):
        self.window, self.redraw, self.entry, self.guide, self.siblings = window, redraw, entry, guide, siblings
        guided_laws = guide is not None and record == "exact"
        self.recorded = LawRing(len(entry.ring.rows), window, entry.uniform) if guided_laws else entry.ring
        rows = entry.ring.rows
        self.drafts = torch.zeros(len(rows), window, dtype=torch.int64, device=rows.device)  # [B, W]
        self.newest = self.drafts.new_zeros(len(rows))  # [B], the last position that has a target law

    def propose(self, state: DecodingState, length: int) -> tuple[Tensor, Tensor, Tensor]:
        if length == 0:
            none = self.drafts[:, :0]
            return none, self.entry.ring.rows[:, :0], none.bool()
        positions = state.upcoming(length + 1)[:, :-1]
        fresh = positions > self.newest[:, None]
        laws = self.entry.laws(state, positions, self.drafts, self.newest)
        if self.recorded is not self.entry.ring:
            laws = torch.where(fresh[..., None], laws, self.recorded.at(self.recorded.slots(positions)))
        forced = state.forced(positions)
        if forced is not None:
            laws = force_tokens(laws, forced)
        return torch.where(fresh, self._draw_entries(state, laws), fit(self.drafts, length)), laws, fresh

    def branch(self, state: DecodingState, drafts: Tensor, laws: Tensor) -> DraftTree | None:
        return None if self.siblings is None or drafts.shape[1] == 0 else self.siblings.tree(state, drafts, laws)

    def _draw_entries(self, state: DecodingState, laws: Tensor) -> Tensor:
        positions = state.upcoming(laws.shape[1] + 1)
        if self.redraw == "gumbel":
            return draw_by_race(laws, state.noise.gumbel(positions, laws.shape[-1])[:, :-1])
        return draw_by_inverse_cdf(laws, state.noise.uniform(positions, Purpose.ENTRY, state.passes)[:, :-1])

    def observe(self, state: DecodingState, window: Window, outcome: Verification) -> None:
        if self.window == 1:
            return  # plain decoding: nothing is ever drafted
        self.entry.record(window)
        last = window.positions[:, -1]
        self.newest.copy_(last if window.full else last.clamp(max=state.grid.tokens - 1))
        if window.drafts.shape[1] == 0:
            return  # a prompt, or the last token of an image: no draft survives, so no other memory is read
        laws = window.target_laws if self.guide is None else self.guide.laws(window, outcome.accepted)
        if self.recorded is not self.entry.ring:
            self.recorded.record(window, laws)
        # of one size in every pass, so that a traced pass can be used again
        self.drafts.copy_(fit(slide(self._redraw(state, window, outcome, laws), outcome.accepted), self.window))

    def _redraw(self, state: DecodingState, window: Window, outcome: Verification, laws: Tensor) -> Tensor:
        """[B, L+1] new drafts from the laws [B, L+1, V]; only those behind the first rejection are used."""
        spoiled = outcome.spoiled
        if self.redraw == "gumbel" and spoiled is None:
            if outcome.choice is not None and self.guide is None:
                return outcome.choice
            return draw_by_race(laws, state.noise.gumbel(window.positions, laws.shape[-1]))
        uniform = state.noise.uniform(window.positions, Purpose.REDRAW, state.passes)
        if self.redraw != "coupled":
            return draw_by_inverse_cdf(laws, uniform)
        # Accept-or-repair with the plain rule at every slot: the new draft has its law and equals the old one as often
        # as any coupling can make it. The slot after the last real draft never held one.
        all_repairable = window.full and spoiled is None
        repairable = window.valid if spoiled is None else window.valid & ~spoiled
        rest = residual(laws[:, :-1], window.q if all_repairable else window.q * repairable[..., None])
        drawn = draw_by_inverse_cdf(torch.cat([rest, laws[:, -1:]], 1), uniform)
        # Behind a rejection the uniforms of verification had no say in what was committed: they can be used again.
        uniform = state.noise.uniform(window.positions, Purpose.VERIFY, state.passes)[:, :-1]
        p_draft = window.p_draft if self.guide is None else at_drafts(laws[:, :-1], window.drafts)
        kept = uniform * window.q_draft < p_draft
        if not all_repairable:
            kept = kept & repairable
        return torch.cat([torch.where(kept, window.drafts, drawn[:, :-1]), drawn[:, -1:]], 1)

    def keep(self, rows: Tensor) -> None:
        self.drafts, self.newest = self.drafts[rows], self.newest[rows]
        self.entry.keep(rows)
        if self.recorded is not self.entry.ring:
            self.recorded.keep(rows)
        if self.guide is not None:
            self.guide.keep(rows)

    def admit(self, slots: Tensor, newcomers: JacobiRun) -> None:
        admit_rows(self.drafts, slots, newcomers.drafts)
        admit_rows(self.newest, slots, newcomers.newest)
        self.entry.admit(slots, newcomers.entry)
        if self.recorded is not self.entry.ring:
            self.recorded.admit(slots, newcomers.recorded)
        if self.guide is not None:
            self.guide.admit(slots, newcomers.guide)
