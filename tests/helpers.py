"""Shared by the tests: toy decoding runs, random laws, chi-square of whole sequences, a tiny Janus."""

from __future__ import annotations

import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from csd_pipeline.decoding import IndexedNoise, Purpose, Warp, Window, decode, seed_words
from csd_pipeline.decoding.sampling import residual
from csd_pipeline.decoding.verification import verify
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import RELAXATIONS, Exact, PhraseRelaxation, Relaxation
from csd_pipeline.relaxation.phrase_library import PhraseLibrary
from csd_pipeline.targets.base import PromptBatch
from csd_pipeline.targets.codebook import fingerprint
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

T3_P, T3_Q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)  # TV 0.4, entropy 1.029653 nats
# The base seeds of the chi-square tests: any three would do.
SEED_BASES = (0, 10**9, 2**63)


def rule_of(name: str, vocabulary: int = 7, **knobs) -> Relaxation:
    """A rule by its registry name, prepared for a toy target; "phrase" knows every run of codes as a phrase."""
    rule = RELAXATIONS[name](**knobs)
    adapter = ToyAdapter(ToyTarget(vocabulary, 1, 2))
    if isinstance(rule, PhraseRelaxation):
        rule._library = every_phrase(adapter, rule.config.max_len)
    rule.prepare(adapter)
    return rule


def every_phrase(adapter: ToyAdapter, max_len: int = 3) -> PhraseLibrary:
    """Every run of 2 .. ``max_len`` codes of a target."""
    codes = torch.arange(adapter.vocabulary)
    phrases = {n: torch.cartesian_prod(*[codes] * n) for n in range(2, max_len + 1)}
    counts = {n: torch.ones(len(ids), dtype=torch.int64) for n, ids in phrases.items()}
    return PhraseLibrary(phrases, counts, len(codes), fingerprint(adapter.codebook))


def window_of(p, q, drafts=None, fresh=False, lengths=None, bonus=None) -> Window:
    """A window from laws [B, L, V] (nested lists or tensors); drafts default to token 0, the bonus law to uniform."""
    p, q = torch.as_tensor(p, dtype=torch.float32), torch.as_tensor(q, dtype=torch.float32)
    images, length, vocabulary = p.shape
    if bonus is None:
        bonus = torch.full((images, 1, vocabulary), 1 / vocabulary)
    drafts = torch.zeros(images, length, dtype=torch.int64) if drafts is None else torch.as_tensor(drafts)
    lengths = torch.full((images,), length) if lengths is None else torch.as_tensor(lengths)
    fresh = torch.full((images, length), fresh) if isinstance(fresh, bool) else fresh
    return Window(torch.cat([p, bonus], 1), q, drafts, fresh, lengths, torch.ones(images, dtype=torch.int64))


def every_symbol(p, q, fresh=False, length=1) -> Window:
    """One image per law pair k of [K, V] and symbol x, with laws p[k], q[k] and draft x in ``length`` slots."""
    p, q = (torch.as_tensor(law, dtype=torch.float32).view(-1, len(p[0])) for law in (p, q))
    pairs, vocabulary = p.shape
    laws = [law.repeat_interleave(vocabulary, 0)[:, None].repeat(1, length, 1) for law in (p, q)]
    return window_of(*laws, drafts=torch.arange(vocabulary).repeat(pairs)[:, None].repeat(1, length), fresh=fresh)


def noise_of(window: Window, base: int = 0) -> tuple[IndexedNoise, torch.Tensor]:
    images = len(window.start)
    return IndexedNoise(seed_words(seeds_from(base, images))), torch.zeros(images, dtype=torch.int64)


class ScriptedNoise:
    """Uniforms given per purpose; no Gumbel noise, so a race picks the most probable token."""

    def __init__(self, **uniforms):
        self.uniforms = {Purpose[name]: torch.as_tensor(value, dtype=torch.float32) for name, value in uniforms.items()}

    def uniform(self, position, purpose, draw):
        given = self.uniforms.get(purpose, torch.zeros(()))
        given = given.view(len(given), -1) if given.dim() else given.view(1, 1)  # one number, one per image, or [B, L]
        if given.shape[1] > 1:
            given = torch.nn.functional.pad(given, (0, position.shape[1] - given.shape[1]))
        return given.expand(position.shape)

    def gumbel(self, position, vocabulary):
        return torch.zeros(*position.shape, vocabulary)


def emitted(p, q, relaxation, alignment_filter=None, fresh=False, slot=0, length=1):
    """For law pairs [K, V]: acceptance [K, V], law of the emitted token [K, V], reported drift [K]; float64.

    ``slot`` of a window of ``length`` drafts; the draft and its laws stand in all of them.
    """
    window = every_symbol(p, q, fresh, length)
    outcome = verify(window, relaxation, alignment_filter, *noise_of(window))
    p, q = (torch.as_tensor(law, dtype=torch.float64).view(-1, len(p[0])) for law in (p, q))
    acceptance = outcome.acceptance[:, slot].view(p.shape).double()
    acceptance = torch.where(q > 0, acceptance, 1.0)  # no draft has q = 0
    mass = q * acceptance
    repair = residual(p, mass)
    law = mass + (1 - mass.sum(1, keepdim=True)).clamp(min=0) * repair / repair.sum(1, keepdim=True)
    return acceptance, law, outcome.drift[:, slot].view(p.shape)[:, 0].double()


def two_position_figures(relaxation, alignment_filter=None) -> tuple[float, float, float]:
    """Expected tokens, distance of the emitted pairs from the target's and its bound, for two drafts of two symbols.

    Target and draft laws: p = (.6, .4), then (.7, .3) after 0 and (.2, .8) after 1; q = (.3, .7), then (.4, .6) and
    (.5, .5). The pair after a rejected first draft is completed by the target.
    """
    p1, q1 = (0.6, 0.4), (0.3, 0.7)
    p2, q2 = ((0.7, 0.3), (0.2, 0.8)), ((0.4, 0.6), (0.5, 0.5))
    f1, law1, drift1 = (v[0] for v in emitted([p1], [q1], relaxation, alignment_filter, slot=0, length=2))
    f2, law2, drift2 = emitted(p2, q2, relaxation, alignment_filter, slot=1, length=2)
    p1, q1, p2, q2 = (torch.tensor(law, dtype=torch.float64) for law in (p1, q1, p2, q2))
    accepted = q1 * f1
    tokens = 1 + (accepted * (1 + (q2 * f2).sum(1))).sum()
    joint = accepted[:, None] * law2 + (law1 - accepted)[:, None] * p2
    bound = drift1 + (accepted * drift2).sum()
    return tokens.item(), tv(joint.flatten(), (p1[:, None] * p2).flatten()).item(), bound.item()


class OperatorLog(TorchDispatchMode):
    """Every operator that runs, and those that make the host wait: scalar reads, sizes that depend on values."""

    HOST_READS = ("_local_scalar", "nonzero", "masked_select", "unique", "repeat_interleave", "equal", "is_nonzero")

    def __init__(self):
        super().__init__()
        self.names, self.host_reads = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.names.append(name)
        boolean_index = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if boolean_index or name.startswith(self.HOST_READS):
            self.host_reads.append(name)
        return func(*args, **(kwargs or {}))


def tv(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return 0.5 * (p - q).abs().sum(-1)


def random_laws(count: int, vocabulary: int, zeros: float = 0.3, seed: int = 0) -> torch.Tensor:
    """[count, V] float32 laws of mixed sharpness, about ``zeros`` of the entries exactly 0, at least one positive."""
    generator = torch.Generator().manual_seed(seed)
    sharpness = 3 * torch.rand(count, 1, generator=generator)
    weights = (sharpness * torch.randn(count, vocabulary, generator=generator)).exp()
    dropped = torch.rand(count, vocabulary, generator=generator) < zeros
    dropped.scatter_(1, torch.randint(vocabulary, (count, 1), generator=generator), False)
    return torch.where(dropped, 0.0, weights) / torch.where(dropped, 0.0, weights).sum(1, keepdim=True)


def draws_from(laws: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """One token per law of [..., V], never one of probability 0."""
    flat = torch.multinomial(laws.reshape(-1, laws.shape[-1]), 1, generator=torch.Generator().manual_seed(seed))
    return flat.view(laws.shape[:-1])


def open_toy(adapter: ToyAdapter, classes: list[int], guided: bool, window: int):
    ids = torch.tensor(classes)[:, None]
    mask = torch.ones_like(ids)
    if guided:
        return adapter.open(PromptBatch(ids, mask, adapter.unconditional(ids), mask), window)
    return adapter.open(PromptBatch(ids, mask), window)


def run_toy(
    model: ToyTarget,
    drafter=None,
    seeds=range(4),
    *,
    warp: Warp | None = None,
    relaxation=None,
    alignment_filter=None,
    adapter: ToyAdapter | None = None,
    classes: list[int] | None = None,
    **options,
):
    """Decode one toy image per seed."""
    warp, drafter = warp or Warp(), drafter or JacobiDrafter(window=3)
    seeds, adapter = list(seeds), adapter or ToyAdapter(model)
    session = open_toy(adapter, classes or [0] * len(seeds), warp.guided, drafter.window + drafter.extra_tokens)
    return decode(
        session,
        adapter,
        seeds=seeds,
        warp=warp,
        drafter=drafter,
        relaxation=relaxation or Exact(),
        alignment_filter=alignment_filter,
        **options,
    )


def seeds_from(base: int, count: int) -> list[int]:
    return [(base + i) % 2**64 for i in range(count)]


def law_p_value(tokens: torch.Tensor, law: dict[tuple[int, ...], float]) -> float:
    """Chi-square p-value of the sequences [B, N] against their law; rare ones are pooled, impossible ones give 0."""
    found, counts = torch.unique(tokens, dim=0, return_counts=True)
    observed = dict(zip(map(tuple, found.tolist()), counts.tolist(), strict=True))
    if any(law.get(sequence, 0.0) == 0.0 for sequence in observed):
        return 0.0
    cells, rare = [], [0.0, 0.0]
    for sequence, probability in law.items():
        pair = (observed.get(sequence, 0), len(tokens) * probability)
        if pair[1] >= 8:
            cells.append(pair)
        else:
            rare = [rare[0] + pair[0], rare[1] + pair[1]]
    if rare[1] >= 8:
        cells.append(tuple(rare))
    else:  # too rare for a cell of their own: join the largest
        cells.sort(key=lambda cell: cell[1])
        cells[-1] = (cells[-1][0] + rare[0], cells[-1][1] + rare[1])
    seen, expected = zip(*cells, strict=True)
    return stats.chisquare(seen, [e * sum(seen) / sum(expected) for e in expected]).pvalue
