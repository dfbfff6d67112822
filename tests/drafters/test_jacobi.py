import pytest
import torch
from helpers import ScriptedNoise, run_toy, window_of
from scipy import stats

from csd_pipeline.decoding.noise import seed_words
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.verification import verify
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.entry import ENTRIES
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets.base import Grid
from csd_pipeline.targets.toy import ToyTarget

# Slot 0 is always rejected; slot 1 moves from Q to P.
P = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]])
Q = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.4, 0.3, 0.2, 0.1]])
DISTANCE = 0.4


def after_one_rejection(redraw: str, images: int):
    """Old and new draft of the slot behind a rejection, and the run that holds the new one."""
    state = DecodingState.start(Grid(1, 8), 4, seed_words(list(range(images))))
    state.committed = torch.ones(images, dtype=torch.int64)
    noise = state.noise.gumbel(torch.full((images, 1), 2), 4)[:, 0]
    # drafts of the Gumbel mode come from the position's own noise, others from anywhere
    old = (Q[1].log() + noise).argmax(-1) if redraw == "gumbel" else torch.multinomial(Q[1].expand(images, 4), 1)[:, 0]
    drafts = torch.stack([torch.full((images,), 2), old], 1)
    window = window_of(P.expand(images, 2, 4), Q.expand(images, 2, 4), drafts)
    outcome = verify(window, Exact(), None, state.noise, state.passes)
    assert (outcome.accepted == 0).all()
    run = JacobiDrafter(3, redraw, "uniform").begin(state)
    run.observe(state, window, outcome)
    state.commit(window, outcome)
    state.counts = [2] * images
    drafts, laws, fresh = run.propose(state, 2)
    return old, drafts, laws, fresh


@pytest.mark.parametrize("redraw", REDRAWS)
def test_a_redraw_has_the_new_law_and_records_it(redraw):
    _, drafts, laws, fresh = after_one_rejection(redraw, 40_000)
    assert torch.equal(laws[:, 0], P[1].expand_as(laws[:, 0])) and not fresh[:, :2].any()
    seen = torch.bincount(drafts[:, 0], minlength=4)
    assert stats.chisquare(seen.numpy(), [4_000, 8_000, 12_000, 16_000]).pvalue > 1e-3
    bonus = torch.bincount(drafts[:, 1], minlength=4)  # the slot behind the last draft: the bonus law, uniform here
    assert torch.equal(laws[:, 1], torch.full_like(laws[:, 1], 0.25))
    assert stats.chisquare(bonus.numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("redraw", "low", "high"), [("fresh", 0.19, 0.21), ("coupled", 0.59, 0.61), ("gumbel", 0.43, 0.6)]
)
def test_coupled_drafts_change_as_seldom_as_any_coupling_allows(redraw, low, high):
    """Independent: sum p q = .2; maximal: 1 - TV = .6; Gumbel: between (1 - TV)/(1 + TV) and that."""
    old, drafts, _, _ = after_one_rejection(redraw, 40_000)
    assert low < (old == drafts[:, 0]).float().mean() < high


class Watched(JacobiDrafter):
    """Checks every proposal of a single image against a plain record of the laws each position has had."""

    def begin(self, state):
        run = super().begin(state)
        self.laws, self.proposals, self.drafted = {}, 0, set()
        propose, observe = run.propose, run.observe

        def watched_propose(state, length):
            drafts, laws, fresh = propose(state, length)
            for slot in range(length):
                self.check(state, int(state.committed) + slot, slot, drafts[0], laws[0, slot], bool(fresh[0, slot]))
            return drafts, laws, fresh

        def watched_observe(state, window, outcome):
            for slot in range(int(window.lengths) + 1):
                self.laws[int(window.start) + slot] = window.target_laws[0, slot].clone()
            observe(state, window, outcome)

        run.propose, run.observe = watched_propose, watched_observe
        return run

    def check(self, state, position, slot, drafts, law, fresh):
        self.proposals += 1
        assert law.sum().item() == pytest.approx(1, abs=1e-6) and law[drafts[slot]] > 0
        assert fresh == (position not in self.laws)
        expected = self.entry_law(state, position, drafts) if fresh else self.laws[position]
        assert torch.allclose(law, expected, atol=1e-6)

    def entry_law(self, state, position, drafts):
        committed, vocabulary, init = int(state.committed), state.vocabulary, self.config.init
        newest = max(self.laws)
        above = next((p for p in range(position - state.grid.columns, -1, -state.grid.columns) if p <= newest), None)

        def token(source):
            value = state.tokens[0, source] if source < committed else drafts[source - committed]
            return torch.nn.functional.one_hot(value, vocabulary).float()

        if init == "uniform" or (init == "above-copy" and above is None):
            return torch.full((vocabulary,), 1 / vocabulary)
        if init == "above-copy":
            return token(above)
        if init == "left":
            return self.laws[newest]
        if init == "left-copy" or above is None:
            return token(newest)
        beside = init == "mean" and newest == position - 1
        return (self.laws[above] + self.laws[newest]) / 2 if beside else self.laws[above]


@pytest.mark.parametrize("redraw", REDRAWS)
@pytest.mark.parametrize("init", ENTRIES)
def test_every_proposal_records_the_law_it_should_have_been_drawn_from(init, redraw):
    model = ToyTarget(3, 3, 3, scale=1.5, seed=8)
    for window in (2, 4, 7):
        drafter = Watched(window, redraw, init)
        for seed in range(4):
            run_toy(model, drafter, [seed])
            assert drafter.proposals > 0


@pytest.mark.parametrize("redraw", REDRAWS)
def test_targets_without_memory_are_accepted_from_the_second_pass_on(redraw):
    model = ToyTarget(3, 3, 3)
    model.table.copy_(model.table[:, :1].expand_as(model.table))
    passes = [trace.nfe for trace in run_toy(model, JacobiDrafter(16, redraw), range(100)).traces]
    assert max(passes) == 2


def test_gumbel_drafts_come_from_the_noise_of_their_own_position():
    """Entering ones too: then a draft in its final context is the token plain decoding draws there."""
    state = DecodingState.start(Grid(1, 8), 4, seed_words([5, 6]))
    run = JacobiDrafter(4, "gumbel", "uniform").begin(state)
    first = window_of(P.expand(2, 2, 4)[:, :0], Q.expand(2, 2, 4)[:, :0], bonus=P[1].expand(2, 1, 4))
    first.start = torch.zeros(2, dtype=torch.int64)
    outcome = verify(first, Exact(), None, state.noise, state.passes)
    run.observe(state, first, outcome)
    state.commit(first, outcome)
    drafts, laws, fresh = run.propose(state, 3)
    noise = state.noise.gumbel(torch.tensor([[1, 2, 3]] * 2), 4)
    assert fresh.all() and torch.equal(drafts, (laws.log() + noise).argmax(-1))


def test_wider_windows_need_fewer_passes():
    model = ToyTarget(2, 4, 3, scale=0.6, seed=9)
    passes = [sum(t.nfe for t in run_toy(model, JacobiDrafter(w), range(1000)).traces) for w in (1, 2, 4)]
    assert passes[0] == 11_000 and passes[0] > passes[1] > passes[2]


def test_bad_knobs_are_refused():
    for window in (0, -1, 1.5, "16"):
        with pytest.raises(ValueError, match=rf"window must be an integer >= 1, got {window!r}"):
            JacobiDrafter(window=window)
    with pytest.raises(
        ValueError, match=r"unknown redraw 'couple' \(did you mean 'coupled'\?\); known: fresh, coupled, gumbel"
    ):
        JacobiDrafter(redraw="couple")
    with pytest.raises(ValueError, match=r"unknown init 'abov' \(did you mean 'above'\?\); known: uniform"):
        JacobiDrafter(init="abov")


def test_only_the_gumbel_mode_shares_noise():
    assert [JacobiDrafter(redraw=redraw).shares_noise for redraw in REDRAWS] == [False, False, True]


@pytest.mark.parametrize(("length", "expected"), [(3, [2, 1, 1, 1]), (2, [2, 1, 2, 1])])
def test_a_coupled_redraw_by_hand(length, expected):
    """Draft 2 survives u = .40 < .667, draft 0 fails u = .90 > .857 and the residual holds token 1 alone, draft 1
    survives; as padding it is drawn anew from p, as what follows the last draft always is: u = .50 for all."""
    p = [[(0.5, 0.3, 0.2), (0.6, 0.3, 0.1), (0.2, 0.2, 0.6)]]
    q = [[(0.2, 0.5, 0.3), (0.7, 0.2, 0.1), (0.3, 0.3, 0.4)]]
    window = window_of(p, q, drafts=[[2, 0, 1]], lengths=[length])
    state = DecodingState.start(Grid(2, 4), 3, seed_words([1]))
    state.noise = ScriptedNoise(VERIFY=[[0.40, 0.90, 0.0]], RESIDUAL=[0.5], REDRAW=[0.5])
    outcome = verify(window, Exact(), None, state.noise, state.passes)
    run = JacobiDrafter(4, "coupled", "uniform").begin(state)
    assert run._redraw(state, window, outcome, window.target_laws).tolist() == [expected]
