"""Whole decoding runs on the toy target, whose law is enumerated."""

import itertools

import pytest
import torch
from helpers import SEED_BASES, OperatorLog, emitted, law_p_value, open_toy, run_toy, seeds_from
from torch.overrides import TorchFunctionMode

from csd_pipeline.alignment import DriftBudget, TVFilter
from csd_pipeline.decoding import NonFiniteLogits, Purpose, Warp, decode
from csd_pipeline.drafters import Drafter, DraftRun, JacobiDrafter
from csd_pipeline.drafters.entry import ENTRIES
from csd_pipeline.drafters.jacobi import REDRAWS, JacobiRun
from csd_pipeline.relaxation import EntropyRelaxation, Exact
from csd_pipeline.targets.base import Grid
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

MODEL = ToyTarget(2, 2, 3, scale=1.2, seed=1)  # 64 sequences of 6 tokens
COUNT = 30_000
LAWS: dict = {}


def target_law(model, warp, prompt=0):
    key = (id(model), repr(warp), prompt)
    if key not in LAWS:
        LAWS[key] = model.enumerate_law(warp, prompt)
    return LAWS[key]


MODES = [("fresh", "mean"), *(("coupled", init) for init in ENTRIES), ("gumbel", "mean"), ("gumbel", "above-copy")]


@pytest.mark.parametrize(("window", "base"), list(zip((2, 3, 5), SEED_BASES, strict=True)))
@pytest.mark.parametrize(("redraw", "init"), MODES)
def test_exact_modes_sample_the_target_law(redraw, init, window, base):
    drafter = JacobiDrafter(window, redraw, init)
    result = run_toy(MODEL, drafter, seeds_from(base, COUNT))
    assert law_p_value(result.tokens, target_law(MODEL, Warp())) > 1e-3
    passes = {trace.nfe for trace in result.traces}
    assert len(passes) > 1 and max(passes) <= 5  # ragged, and never slower than plain decoding


@pytest.mark.parametrize("base", SEED_BASES)
def test_plain_decoding_samples_the_target_law(base):
    result = run_toy(MODEL, JacobiDrafter(1), seeds_from(base, COUNT))
    assert law_p_value(result.tokens, target_law(MODEL, Warp())) > 1e-3
    assert all(trace.nfe == 5 and trace.tokens_per_step == 1 for trace in result.traces)


WARPS = [
    Warp(temperature=0.7),
    Warp(top_k=2),
    Warp(top_p=0.8),
    Warp(guidance_scale=1.5),
    Warp(guidance_scale=2, temperature=0.9, top_p=0.9),
]
WIDE = ToyTarget(3, 2, 2, scale=1.2, seed=2)  # 81 sequences of 4 tokens


@pytest.mark.parametrize(
    ("warp", "redraw"), list(zip(WARPS, ["coupled", "fresh", "coupled", "gumbel", "coupled"], strict=True))
)
def test_exact_modes_sample_the_warped_law(warp, redraw):
    result = run_toy(WIDE, JacobiDrafter(3, redraw, "above"), seeds_from(5, COUNT), warp=warp)
    law = target_law(WIDE, warp)
    assert law_p_value(result.tokens, law) > 1e-3
    assert law_p_value(result.tokens, target_law(WIDE, Warp())) < 1e-6  # the warp matters


def test_mixed_prompts_each_sample_their_own_law():
    model = ToyTarget(2, 2, 3, classes=3, scale=1.2, seed=4)
    classes = [i % 2 for i in range(COUNT)]
    warp = Warp(guidance_scale=2)
    tokens = run_toy(model, JacobiDrafter(4), seeds_from(9, COUNT), warp=warp, classes=classes).tokens
    for prompt in (0, 1):
        mine = tokens[prompt::2]
        assert law_p_value(mine, target_law(model, warp, prompt)) > 1e-3
        assert law_p_value(mine, target_law(model, warp, 1 - prompt)) < 1e-6


class StaleRun(JacobiRun):
    """The known mistake: a kept draft keeps the law it was first drawn from on record."""

    def observe(self, state, window, outcome):
        super().observe(state, window, outcome)
        if window.drafts.shape[1]:
            uniform = state.noise.uniform(window.positions, Purpose.VERIFY, state.passes)[:, :-1]
            kept = (uniform < window.vanilla) & window.valid
            stale = torch.where(kept[..., None], window.draft_laws, window.target_laws[:, :-1])
            self.recorded.record(window, torch.cat([stale, window.target_laws[:, -1:]], 1))


class StaleDrafter(JacobiDrafter):
    def begin(self, state):
        run = super().begin(state)
        return StaleRun(run.window, run.redraw, run.entry)


def test_the_chi_square_test_sees_a_stale_record():
    result = run_toy(MODEL, StaleDrafter(5, "coupled", "uniform"), seeds_from(0, COUNT))
    assert law_p_value(result.tokens, target_law(MODEL, Warp())) < 1e-6


def test_the_chi_square_test_sees_a_relaxed_rule():
    result = run_toy(MODEL, JacobiDrafter(5), seeds_from(0, COUNT), relaxation=EntropyRelaxation(0.5))
    assert law_p_value(result.tokens, target_law(MODEL, Warp())) < 1e-6
    assert max(trace.drift for trace in result.traces) > 0.05


@pytest.mark.parametrize(
    ("rule", "alignment_filter"),
    [
        (EntropyRelaxation(0.0), None),
        (EntropyRelaxation(0.5), TVFilter(0.0)),
        (EntropyRelaxation(0.5), DriftBudget(0.0)),
        (EntropyRelaxation(0.5), TVFilter(0.5) & DriftBudget(0.0)),
    ],
)
@pytest.mark.parametrize("redraw", REDRAWS)
def test_strength_zero_equals_exact_token_for_token(redraw, rule, alignment_filter):
    drafter, seeds = JacobiDrafter(4, redraw), range(3000)
    exact = run_toy(MODEL, drafter, seeds)
    relaxed = run_toy(MODEL, drafter, seeds, relaxation=rule, alignment_filter=alignment_filter)
    assert torch.equal(exact.tokens, relaxed.tokens)
    assert [t.accepted for t in exact.traces] == [t.accepted for t in relaxed.traces]
    assert all(t.drift == 0 for t in relaxed.traces)


# --- the law of a relaxed run ---------------------------------------------------------------------------------------


class ScriptedRun(DraftRun):
    """Drafts two positions from fixed laws in the first pass; from the uniform law, as fresh drafts, afterwards."""

    def __init__(self, first, second):
        self.first, self.second = torch.tensor(first), torch.tensor(second)

    def propose(self, state, length):
        images = len(state.counts)
        if state.counts[0] != 1 or max(state.counts) != 1:
            drafts, laws = torch.zeros(images, length, dtype=torch.int64), torch.zeros(images, length, 2)
            laws[..., 0] = 1.0  # whatever a point mass proposes is verified
            return drafts, laws, torch.ones(images, length, dtype=torch.bool)
        generator = torch.Generator().manual_seed(images)
        one = (torch.rand(images, generator=generator) >= self.first[0]).long()
        two = (torch.rand(images, generator=generator) >= self.second[one, 0]).long()
        laws = torch.stack([self.first.expand(images, 2), self.second[one]], 1)
        return torch.stack([one, two], 1), laws, torch.zeros(images, 2, dtype=torch.bool)

    def observe(self, state, window, outcome):
        pass

    def keep(self, rows):
        pass

    def admit(self, slots, newcomers):
        pass


class ScriptedDrafter(Drafter):
    window = 3

    def begin(self, state):
        return ScriptedRun((0.3, 0.7), ((0.4, 0.6), (0.5, 0.5)))


def two_position_model() -> ToyTarget:
    """Position 0 and 3 uniform; position 1: (.6, .4); position 2: (.7, .3) after 0, (.2, .8) after 1."""
    model = ToyTarget(2, 1, 4)
    model.table.zero_()
    model.table[:, 1:3] = torch.tensor([0.6, 0.4]).log()
    model.table[:, [3, 5]] = torch.tensor([0.7, 0.3]).log()
    model.table[:, [4, 6]] = torch.tensor([0.2, 0.8]).log()
    return model


@pytest.mark.parametrize(
    ("lam", "delta", "tokens", "distance"),
    [(0.5, 0.65, 2.724928, 0.235554), (0.1, 0.65, 2.292271, 0.047111), (0.5, 0.25, 2.19, 0)],
)
def test_the_two_position_example_through_the_loop(lam, delta, tokens, distance):
    rule, alignment_filter = EntropyRelaxation(lam), TVFilter(delta)
    f1, law1, _ = (v[0] for v in emitted([(0.6, 0.4)], [(0.3, 0.7)], rule, alignment_filter))
    p2 = torch.tensor([(0.7, 0.3), (0.2, 0.8)], dtype=torch.float64)
    _, law2, _ = emitted(p2.tolist(), [(0.4, 0.6), (0.5, 0.5)], rule, alignment_filter)
    accepted1 = torch.tensor([0.3, 0.7], dtype=torch.float64) * f1
    joint = accepted1[:, None] * law2 + (law1 - accepted1)[:, None] * p2
    plain = torch.tensor([0.6, 0.4], dtype=torch.float64)[:, None] * p2
    assert 0.5 * (joint - plain).abs().sum().item() == pytest.approx(distance, abs=1e-6)

    count = 60_000
    result = run_toy(
        two_position_model(),
        ScriptedDrafter(),
        seeds_from(3, count),
        relaxation=rule,
        alignment_filter=alignment_filter,
    )

    def law(pair):
        return {(a, b, c, d): 0.25 * float(pair[b, c]) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)}

    assert law_p_value(result.tokens, law(joint)) > 1e-3
    assert (law_p_value(result.tokens, law(plain)) > 1e-3) == (distance == 0)
    per_pass = sum(trace.accepted[0] + 1 for trace in result.traces) / count
    assert per_pass == pytest.approx(tokens, abs=5 / count**0.5)


@pytest.mark.parametrize("alignment_filter", [None, TVFilter(0.4), DriftBudget(0.03)])
@pytest.mark.parametrize("redraw", REDRAWS)
def test_a_relaxed_run_has_the_enumerated_law(redraw, alignment_filter):
    """Three tokens: the second is drafted from the law of the first, its left neighbour; the third is never drafted."""
    model = ToyTarget(3, 1, 3, scale=1.0, seed=6)
    rule = EntropyRelaxation(0.4, relax_fresh=True)
    laws = Warp().laws(model.table[:1], 1)[0].double()
    first, second, third = laws[0], laws[1:4], laws[4:].view(3, 3, 3)
    _, biased, drift = emitted(second.float(), first.expand(3, 3).float(), rule, alignment_filter)
    law = (first[:, None, None] * biased[:, :, None] * third).flatten().tolist()
    law = dict(zip(itertools.product(range(3), repeat=3), law, strict=True))
    seeds, drafter = seeds_from(11, COUNT), JacobiDrafter(2, redraw, "left")
    result = run_toy(model, drafter, seeds, relaxation=rule, alignment_filter=alignment_filter)
    assert law_p_value(result.tokens, law) > 1e-3
    assert law_p_value(result.tokens, target_law(model, Warp())) < 1e-6
    assert [t.drift for t in result.traces[:50]] == pytest.approx(drift[result.tokens[:50, 0]].tolist(), abs=1e-6)


# --- batches, seeds, windows ----------------------------------------------------------------------------------------

LONG = ToyTarget(3, 3, 3, classes=3, scale=1.5, seed=7)


@pytest.mark.parametrize("redraw", REDRAWS)
@pytest.mark.parametrize("rule", [EntropyRelaxation(0.0), EntropyRelaxation(0.3)])
def test_an_image_of_a_batch_equals_its_single_run(redraw, rule):
    drafter, warp = JacobiDrafter(4, redraw), Warp(guidance_scale=1.5, top_p=0.95)
    options = {"warp": warp, "relaxation": rule, "alignment_filter": TVFilter(0.6), "maps": True}
    seeds, classes = seeds_from(2**63, 40), [i % 2 for i in range(40)]
    batch = run_toy(LONG, drafter, seeds, classes=classes, **options)
    assert len({trace.nfe for trace in batch.traces}) > 1
    for i, seed in enumerate(seeds):
        alone = run_toy(LONG, drafter, [seed], classes=[classes[i]], **options)
        assert torch.equal(alone.tokens[0], batch.tokens[i])
        mine, other = alone.traces[0], batch.traces[i]
        assert mine.accepted == other.accepted and mine.nfe == other.nfe and mine.seed == other.seed == seed
        for name, values in mine.maps.items():
            assert torch.allclose(values, other.maps[name], atol=1e-6, equal_nan=True), name


def test_a_permuted_batch_gives_permuted_images():
    seeds = seeds_from(100, 200)
    order = torch.randperm(200)
    straight = run_toy(LONG, JacobiDrafter(4), seeds).tokens
    shuffled = run_toy(LONG, JacobiDrafter(4), [seeds[i] for i in order.tolist()]).tokens
    assert torch.equal(shuffled, straight[order])


@pytest.mark.parametrize("init", ENTRIES)
@pytest.mark.parametrize("window", [1, 2, 8, 16, 64])
def test_gumbel_mode_is_plain_decoding_token_for_token(window, init):
    warp, seeds = Warp(guidance_scale=2, temperature=0.8, top_k=2), seeds_from(31, 300)
    plain = run_toy(LONG, JacobiDrafter(1, "fresh", "uniform"), seeds, warp=warp).tokens
    result = run_toy(LONG, JacobiDrafter(window, "gumbel", init), seeds, warp=warp)
    assert torch.equal(result.tokens, plain) and len(plain.unique(dim=0)) > 30
    assert window == 1 or sum(t.nfe for t in result.traces) < 8 * 300
    for image in range(3):
        assert torch.equal(
            run_toy(LONG, JacobiDrafter(window, "gumbel", init), seeds[image : image + 1], warp=warp).tokens[0],
            plain[image],
        )


@pytest.mark.parametrize("redraw", REDRAWS)
def test_plain_decoding_does_not_depend_on_the_redraw(redraw):
    plain = run_toy(LONG, JacobiDrafter(1), range(500)).tokens
    assert torch.equal(run_toy(LONG, JacobiDrafter(1, redraw), range(500)).tokens, plain)


@pytest.mark.parametrize("redraw", REDRAWS)
@pytest.mark.parametrize("warp", [Warp(temperature=0), Warp(top_k=1), Warp(top_p=0.0)])
def test_greedy_is_the_same_in_every_exact_mode(redraw, warp):
    logits, tokens = LONG.table[0], []
    for _ in range(9):
        sequence = torch.tensor(tokens + [0] * (9 - len(tokens)))
        tokens.append(int(logits[LONG.prefix_index(sequence, torch.tensor(len(tokens)))].argmax()))
    for window in (1, 2, 5, 16):
        result = run_toy(LONG, JacobiDrafter(window, redraw), range(40), warp=warp)
        assert (result.tokens == torch.tensor(tokens)).all()


def test_different_seeds_give_different_images_and_equal_seeds_equal_ones():
    flat = ToyTarget(3, 3, 3, scale=0.1)  # about 20,000 sequences, equally likely
    tokens = run_toy(flat, JacobiDrafter(4), [0, 2**32, 2**63, 2**64 - 1, 0]).tokens
    assert len(tokens.unique(dim=0)) == 4 and torch.equal(tokens[0], tokens[4])


def test_extreme_settings_give_legal_tokens():
    model = ToyTarget(5, 2, 2, scale=1.0)
    model.table.data = (2 * torch.rand_like(model.table) - 1).mul(6e4).half()
    for warp in (
        Warp(guidance_scale=20, temperature=0.01),
        Warp(guidance_scale=20, top_k=1),
        Warp(guidance_scale=20, top_p=0.0),
    ):
        for rule in (EntropyRelaxation(0.0), EntropyRelaxation(0.5)):
            result = run_toy(model, JacobiDrafter(3), range(50), warp=warp, relaxation=rule)
            assert ((result.tokens >= 0) & (result.tokens < 5)).all()
            assert len(result.tokens.unique(dim=0)) == 1


def test_one_token_images_need_no_pass_beyond_the_prefill():
    model = ToyTarget(3, 1, 1)
    result = run_toy(model, JacobiDrafter(4), range(3000))
    assert all(trace.nfe == 0 and trace.accepted == [] for trace in result.traces)
    assert law_p_value(result.tokens, target_law(model, Warp())) > 1e-3


# --- forced tokens --------------------------------------------------------------------------------------------------


class ForcedAdapter(ToyAdapter):
    """The last token of every row is token 2, which the model all but rules out."""

    @property
    def grid(self):
        return Grid(2, 3, torch.tensor([-1, -1, 2, -1, -1, 2]))


def forced_model() -> ToyTarget:
    model = ToyTarget(3, 2, 3, scale=1.2, seed=3)
    model.table[..., 2] = -50.0
    return model


def forced_law(model: ToyTarget) -> dict:
    """Tokens 0 and 1 at the four free positions."""
    law = {}
    for sequence in torch.cartesian_prod(*[torch.arange(2)] * 4):
        a, b, c, d = sequence.tolist()
        tokens = torch.tensor([a, b, 2, c, d, 2])
        index = model.prefix_index(tokens.expand(6, 6), torch.arange(6))
        laws = model.table[0][index].double().softmax(-1)
        law[tuple(tokens.tolist())] = laws[[0, 1, 3, 4], [a, b, c, d]].prod().item()
    return law


@pytest.mark.parametrize(
    ("redraw", "init"),
    [
        ("fresh", "mean"),
        ("fresh", "uniform"),
        ("coupled", "left"),
        ("coupled", "left-copy"),
        ("coupled", "above-copy"),
        ("gumbel", "mean"),
    ],
)
@pytest.mark.parametrize("window", [2, 4])
def test_forced_tokens_are_inserted_and_the_rest_keeps_its_law(redraw, init, window):
    model = forced_model()
    adapter = ForcedAdapter(model)
    result = run_toy(model, JacobiDrafter(window, redraw, init), seeds_from(7, 25_000), adapter=adapter)
    assert (result.tokens[:, [2, 5]] == 2).all()
    assert law_p_value(result.tokens, forced_law(model)) > 1e-3


@pytest.mark.parametrize("init", ENTRIES)
@pytest.mark.parametrize("redraw", REDRAWS)
def test_forced_tokens_are_proposed_exactly_where_they_are_forced(redraw, init, monkeypatch):
    """A line mark is no neighbour to copy, nor one of the tokens to choose from."""
    propose, seen = JacobiRun.propose, []

    def spy(run, state, length):
        drafts, laws, fresh = propose(run, state, length)
        real = state.upcoming(length + 1)[:, :-1] < state.grid.tokens
        forced = state.forced(state.upcoming(length + 1)[:, :-1])
        seen.append((drafts[real], forced[real], laws[real]))
        return drafts, laws, fresh

    monkeypatch.setattr(JacobiRun, "propose", spy)
    model = forced_model()
    run_toy(model, JacobiDrafter(4, redraw, init), range(300), adapter=ForcedAdapter(model))
    drafts, forced, laws = (torch.cat(values) for values in zip(*seen, strict=True))
    assert torch.equal(drafts == 2, forced == 2) and (forced == 2).any() and (forced < 0).any()
    assert torch.allclose(laws.sum(-1), torch.ones(()))


def test_forced_tokens_are_never_relaxed():
    model = forced_model()
    rule = EntropyRelaxation(5.0, relax_fresh=True)
    for redraw in REDRAWS:
        result = run_toy(
            model, JacobiDrafter(4, redraw), range(500), adapter=ForcedAdapter(model), relaxation=rule, maps=True
        )
        assert (result.tokens[:, [2, 5]] == 2).all()
        drift = torch.stack([trace.maps["drift"] for trace in result.traces])
        entropy = torch.stack([trace.maps["entropy"] for trace in result.traces])
        assert (drift[:, :, 2] == 0).all() and (entropy[:, :, 2] == 0).all() and drift.max() > 0


def test_a_forced_draft_costs_no_acceptance():
    model = forced_model()
    result = run_toy(model, JacobiDrafter(2, init="uniform"), range(500), adapter=ForcedAdapter(model), maps=True)
    tested = torch.stack([trace.maps["acceptance"] for trace in result.traces])[:, 0, 2]
    assert (tested[~tested.isnan()] == 1).all() and (~tested.isnan()).any()


# --- rollback -------------------------------------------------------------------------------------------------------


class MarkedRun(DraftRun):
    """Proposes the right tokens up to ``right`` of them, then token 4, which the target never draws."""

    def __init__(self, truth, right):
        self.truth, self.right = truth, right

    def propose(self, state, length):
        positions = state.committed[:, None] + torch.arange(length)
        drafts = self.truth[positions.clamp(max=len(self.truth) - 1)]
        drafts = torch.where(torch.arange(length) < self.right, drafts, 4)
        return drafts, torch.nn.functional.one_hot(drafts, 5).float(), torch.zeros_like(drafts, dtype=torch.bool)

    def observe(self, state, window, outcome):
        pass

    def keep(self, rows):
        pass

    def admit(self, slots, newcomers):
        pass


class MarkedDrafter(Drafter):
    window = 6

    def __init__(self, truth, right):
        self.truth, self.right = truth, right

    def begin(self, state):
        return MarkedRun(self.truth, self.right)


@pytest.mark.parametrize("rule", [EntropyRelaxation(0.0), EntropyRelaxation(9.0)])
@pytest.mark.parametrize("right", range(6))
def test_nothing_of_a_rejected_tail_survives(right, rule):
    model = ToyTarget(5, 2, 3)
    model.table[..., 4] = -float("inf")
    warp = Warp(temperature=0)
    truth = run_toy(model, JacobiDrafter(1), [0], warp=warp).tokens[0]
    result = run_toy(model, MarkedDrafter(truth, right), range(3), warp=warp, relaxation=rule)
    assert (result.tokens == truth).all()
    # 5 tokens follow the prefill's, right + 1 per pass
    passes = [right] * (5 // (right + 1)) + ([5 % (right + 1) - 1] if 5 % (right + 1) else [])
    assert all(trace.accepted == [min(k, 4) for k in passes] for trace in result.traces)


# --- reports, interruption, faults ----------------------------------------------------------------------------------


class HostReads(TorchFunctionMode):
    """Counts what makes the host wait for tensor values."""

    NAMES = ("tolist", "item", "__bool__", "__int__", "__float__", "__index__", "numpy", "nonzero", "cpu")

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in self.NAMES:
            self.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("alignment_filter", [None, TVFilter(0.5) & DriftBudget(0.1)])
@pytest.mark.parametrize(("redraw", "init"), MODES)
def test_at_most_one_host_read_per_pass(redraw, init, alignment_filter):
    for model, adapter in ((LONG, None), (forced_model(), ForcedAdapter)):
        adapter = adapter and adapter(model)
        warp, rule = Warp(guidance_scale=2, top_k=2, top_p=0.9), EntropyRelaxation(0.5)
        with HostReads() as reads, OperatorLog() as operators:
            result = run_toy(
                model,
                JacobiDrafter(4, redraw, init),
                range(6),
                warp=warp,
                relaxation=rule,
                alignment_filter=alignment_filter,
                adapter=adapter,
            )
        passes = max(trace.nfe for trace in result.traces) + 1
        assert reads.calls.count("tolist") >= passes
        assert len(reads.calls) + len(operators.host_reads) <= passes + 2  # the maps are read once, at the end


def test_passes_are_counted_at_the_call():
    adapter, forwards = ToyAdapter(LONG), []
    original = adapter.open

    def watched(prompt, window):
        session = original(prompt, window)
        step = session._step
        session._step = lambda *args: forwards.append(len(args[0])) or step(*args)
        return session

    adapter.open = watched
    seen = []
    result = run_toy(
        LONG, JacobiDrafter(4), range(20), adapter=adapter, on_pass=lambda progress: seen.append(progress.passes)
    )
    assert len(forwards) == max(trace.nfe for trace in result.traces) and seen == list(range(1, len(forwards) + 2))
    # an image leaves with its last token: each forward carries only the unfinished ones
    assert forwards == [sum(trace.nfe > i for trace in result.traces) for i in range(len(forwards))]
    for trace in result.traces:
        assert len(trace.accepted) == trace.nfe and sum(a + 1 for a in trace.accepted) == trace.tokens - 1 == 8


@pytest.mark.parametrize("redraw", REDRAWS)
def test_maps_tell_when_and_how_each_token_came(redraw):
    result = run_toy(LONG, JacobiDrafter(4, redraw), range(50), maps=True)
    for trace in result.traces:
        assert {name: tuple(m.shape) for name, m in trace.maps.items()} == dict.fromkeys(
            ("drift", "entropy", "acceptance", "passes"), (3, 3)
        )
        passes = trace.maps["passes"].flatten().long()
        assert (passes.diff() >= 0).all() and passes[0] == 1
        assert torch.bincount(passes)[2:].tolist() == [a + 1 for a in trace.accepted]
        assert trace.maps["acceptance"].flatten()[0].isnan() and trace.drift == 0


def test_entropy_map_is_the_entropy_of_the_committed_context():
    result = run_toy(LONG, JacobiDrafter(4), range(20), maps=True)
    for tokens, trace in zip(result.tokens, result.traces, strict=True):
        laws = LONG.table[0][LONG.prefix_index(tokens.expand(9, 9), torch.arange(9))].softmax(-1)
        assert torch.allclose(trace.maps["entropy"].flatten(), -(laws * laws.log()).sum(-1), atol=1e-5)


def test_returning_false_interrupts_and_anything_else_does_not():
    full = run_toy(LONG, JacobiDrafter(3), range(5))
    assert full.complete and all(trace.tokens == 9 for trace in full.traces)
    snapshots = []

    def stop_after_three(progress):
        snapshots.append(progress.tokens.clone())
        return progress.passes < 3

    stopped = run_toy(LONG, JacobiDrafter(3), range(5), on_pass=stop_after_three)
    assert not stopped.complete and len(snapshots) == 3
    for i, trace in enumerate(stopped.traces):
        assert 3 <= trace.tokens < 9 and trace.nfe == 2
        assert torch.equal(stopped.tokens[i, : trace.tokens], full.tokens[i, : trace.tokens])
        assert (stopped.tokens[i, trace.tokens :] == 0).all()
    silent = run_toy(LONG, JacobiDrafter(3), range(5), on_pass=lambda progress: None)
    assert silent.complete and torch.equal(silent.tokens, full.tokens)
    at_the_end = run_toy(LONG, JacobiDrafter(3), range(5), on_pass=lambda progress: min(progress.counts) < 9)
    assert at_the_end.complete and torch.equal(at_the_end.tokens, full.tokens)


def test_progress_shows_counts_and_tokens_of_all_images():
    seen = []
    result = run_toy(
        LONG, JacobiDrafter(4), range(8), on_pass=lambda p: seen.append((list(p.counts), p.tokens.clone()))
    )
    assert seen[0][0] == [1] * 8 and seen[-1][0] == [9] * 8
    for counts, tokens in seen:
        for i, count in enumerate(counts):
            assert torch.equal(tokens[i, :count], result.tokens[i, :count]) and (tokens[i, count:] == 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("warp", [Warp(), Warp(temperature=0), Warp(top_k=2), Warp(top_p=0.5), Warp(guidance_scale=3)])
@pytest.mark.parametrize("redraw", REDRAWS)
def test_logits_that_are_no_numbers_raise(bad, warp, redraw):
    model = ToyTarget(3, 2, 2)
    model.table[0, 1:4, 1] = bad  # after the first token
    with pytest.raises(NonFiniteLogits, match=r"not finite.*bfloat16"):
        run_toy(model, JacobiDrafter(3, redraw), range(3), warp=warp)


def test_masked_logits_are_legal():
    model = ToyTarget(3, 2, 2)
    model.table[..., 0] = -float("inf")
    assert (run_toy(model, JacobiDrafter(3), range(200)).tokens > 0).all()


def test_guidance_without_unconditional_rows_is_refused():
    model = ToyTarget()
    adapter = ToyAdapter(model)
    session = open_toy(adapter, [0, 0], guided=False, window=1)
    with pytest.raises(ValueError, match="guidance needs unconditional rows"):
        decode(session, adapter, seeds=[0, 1], warp=Warp(2.0), drafter=JacobiDrafter(1), relaxation=Exact())
