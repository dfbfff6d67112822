"""The cost structure of released SJD and CSD loops, making the decisions of ours: the baseline of the loop itself.

Kept from them: a dynamic cache that is cut after every pass and concatenated anew in every layer of the next one,
forwards without a static mask, and acceptance in a Python loop that reads single numbers from the device at every
draft. Left out: their random numbers. The noise is that of our loop, so the tokens are the same and only the costs
differ; what they spend on drawing [W, V] uniforms to use W of them is not imitated, so this arm is rather too fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from csd_pipeline.alignment import TVFilter
from csd_pipeline.decoding import IndexedNoise, Purpose, Warp, seed_words
from csd_pipeline.decoding.sampling import draw_by_inverse_cdf, draw_by_race, residual
from csd_pipeline.relaxation import EntropyRelaxation, Exact
from csd_pipeline.targets import PromptBatch

from .clocks import Clock


def check_released(drafter, relaxation, alignment_filter) -> None:
    """Raise ValueError for a method other than the released ones: SJD, and CSD with its total variation filter."""
    released = drafter.config.redraw == "fresh" and drafter.config.init == "uniform" and not drafter.extra_tokens
    if isinstance(relaxation, EntropyRelaxation):
        released &= relaxation.config.relax_fresh and not relaxation.config.support_guard
        released &= alignment_filter is None or isinstance(alignment_filter, TVFilter)
    else:
        released &= isinstance(relaxation, Exact)
    if not released:
        raise ValueError(
            "loop=naive repeats released loops, which know redraw=fresh init=uniform without a tree, with "
            "relaxation=exact, or with relaxation=entropy:support_guard=false,relax_fresh=true and filter=tv; change "
            "these, or the loop"
        )


class CopyingSession:
    """A Janus target with transformers' dynamic cache; one image, its guidance row beside it.

    Args:
        adapter: of the target.
        prompt: of one image, without padding.
    """

    def __init__(self, adapter, prompt: PromptBatch):
        self.adapter, self.cache = adapter, DynamicCache()
        self.ids, _ = prompt.rows()

    def prefill(self) -> Tensor:
        """[R, 1, V] logits of the first image token."""
        return self._logits(self.adapter.embed_prompt(self.ids))[:, -1:]

    def step(self, tokens: Tensor) -> Tensor:
        """[R, T, V] logits after each of the tokens [1, T]."""
        return self._logits(self.adapter.embed_codes(tokens).repeat(len(self.ids), 1, 1))

    def cut(self, rejected: int) -> None:
        """Forget the newest ``rejected`` tokens."""
        if rejected:
            self.cache.crop(-rejected)

    def _logits(self, embeds: Tensor) -> Tensor:
        cache = {self.adapter.cache_argument: self.cache}
        hidden = self.adapter.language_model(inputs_embeds=embeds, use_cache=True, **cache).last_hidden_state
        return self.adapter.logits(hidden)


@dataclass
class NaiveResult:
    """Tokens [1, N], accepted drafts of every pass, drift summed over positions, and the clock of its bookkeeping."""

    tokens: Tensor
    accepted: list[int]
    drift: float
    bookkeeping: Clock


@torch.no_grad()
def decode_naive(
    session: CopyingSession, adapter, *, seed: int, warp: Warp, drafter, relaxation, alignment_filter, device="cpu"
) -> NaiveResult:
    """Decode one image, token for token what our loop draws with these parts and this seed (up to rounding).

    Raises:
        ValueError: parts the released loops do not know.
    """
    check_released(drafter, relaxation, alignment_filter)
    noise = _Noise(seed, adapter.grid.tokens, device)
    rule = _Rule(relaxation, alignment_filter, Clock(device))
    law = warp.laws(session.prefill(), images=1)[0, 0]
    tokens, accepted = [noise.plain(law, 0)], []
    drafts, laws = [], []
    while len(tokens) < adapter.grid.tokens:
        noise.number += 1
        start, length = len(tokens), min(drafter.window, adapter.grid.tokens - len(tokens)) - 1
        for position in range(start + len(drafts), start + length):
            laws.append(law.new_full(law.shape, 1.0 / len(law)))
            drafts.append(noise.draw(laws[-1], Purpose.ENTRY, position))
        ids = torch.tensor([[tokens[-1], *drafts[:length]]], device=device)
        p = warp.laws(session.step(ids), images=1)[0].clone()
        q = [law.clone() for law in laws[:length]]
        count = 0
        while count < length:
            chance = rule.chance(p[count], q[count], drafts[count])
            if not noise.uniform(Purpose.VERIFY, start + count) < chance:
                break
            count += 1
        if count == length:
            following = noise.plain(p[count], start + count)
        else:
            following = noise.draw(residual(p[count], q[count]), Purpose.RESIDUAL, start + count)
        tokens += [*drafts[:count], following]
        accepted.append(count)
        session.cut(length - count)
        laws = [p[slot] for slot in range(count + 1, length + 1)]
        drafts = [noise.draw(p[slot], Purpose.REDRAW, start + slot) for slot in range(count + 1, length + 1)]
    return NaiveResult(torch.tensor([tokens], device=device), accepted, rule.drift, rule.bookkeeping)


@dataclass
class _Noise:
    """The indexed noise of our loop, one number at a time."""

    seed: int
    positions: int
    device: torch.device | str
    number: int = 0  # of the pass

    def __post_init__(self):
        self.indexed = IndexedNoise(seed_words([self.seed], self.device), self.positions)

    def uniform(self, purpose: Purpose, position: int) -> float:
        return self.indexed.uniform(self._index(position), purpose, self.number).item()

    def draw(self, weights: Tensor, purpose: Purpose, position: int) -> int:
        """A token from ``weights`` [V]."""
        uniform = self.indexed.uniform(self._index(position), purpose, self.number)
        return draw_by_inverse_cdf(weights[None], uniform[0]).item()

    def plain(self, law: Tensor, position: int) -> int:
        """The token plain decoding would draw."""
        return draw_by_race(law, self.indexed.gumbel(self._index(position), len(law))[0, 0]).item()

    def _index(self, position: int) -> Tensor:
        return torch.tensor([[position]], device=self.device)


@dataclass
class _Rule:
    """``min(1, p/q + lam H [TV < delta])`` at one draft, as released; what it spends is kept, on a clock of its own."""

    relaxation: Exact | EntropyRelaxation
    alignment_filter: TVFilter | None
    bookkeeping: Clock
    drift: float = 0.0

    def chance(self, p: Tensor, q: Tensor, draft: int) -> float:
        bonus = 0.0
        if not self.relaxation.exact and self._open(p, q):
            bonus = self.relaxation.config.lam * -torch.special.xlogy(p, p).sum().item()
            with self.bookkeeping:
                self.drift += (torch.minimum(q, p + bonus * q) - p).clamp(min=0).sum().item()
        return min(1.0, p[draft].item() / q[draft].item() + bonus)

    def _open(self, p: Tensor, q: Tensor) -> bool:
        if self.alignment_filter is None:
            return True
        return (0.5 * (p - q).abs().sum()).item() < self.alignment_filter.config.delta
