import torch
from helpers import random_laws, window_of

from csd_pipeline.decoding.noise import seed_words
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.drafters.entry import EntryLaws
from csd_pipeline.targets.base import Grid

UNIFORM = torch.full((4,), 0.25)


def recorded(init: str, lengths=(2, 1)):
    """Two images on rows of three: token 3 committed, laws known for positions 0 .. length."""
    state = DecodingState.start(Grid(4, 3), 4, seed_words([1, 2]))
    state.committed, state.tokens[:, 0] = torch.tensor([1, 1]), 3
    laws = random_laws(6, 4, zeros=0).view(2, 3, 4)
    entry = EntryLaws(init, state, window=4)
    window = window_of(laws[:, :2], laws[:, :2], lengths=list(lengths), bonus=laws[:, 2:])
    window.start = torch.zeros(2, dtype=torch.int64)
    entry.record(window)
    return entry, state, laws


def at(entry, state, *positions, drafts=((1, 2), (1, 0)), surviving=(2, 1)):
    positions = torch.tensor(positions).expand(2, -1)
    return entry.laws(state, positions, torch.tensor(drafts), torch.tensor(surviving))


def point(token: int) -> torch.Tensor:
    return torch.eye(4)[token]


def test_left_is_the_newest_law_of_each_image():
    entry, state, laws = recorded("left")
    got = at(entry, state, 3, 5)
    assert torch.equal(got[0], laws[0, [2, 2]]) and torch.equal(got[1], laws[1, [1, 1]])


def test_above_is_the_law_one_row_up_or_more_where_that_is_unknown():
    entry, state, laws = recorded("above")
    got = at(entry, state, 3, 4, 5, 8)
    assert torch.equal(got[0], laws[0, [0, 1, 2, 2]])
    assert torch.equal(got[1, :2], laws[1, [0, 1]])
    assert torch.equal(got[1, 2], point(1)) and torch.equal(got[1, 3], point(1))  # nothing known in that column


def test_above_repeats_the_newest_token_in_the_first_row():
    for init in ("above", "mean"):
        entry, state, _ = recorded(init)
        got = at(entry, state, 2)
        assert torch.equal(got[1, 0], point(1))
        got = at(entry, state, 1, 2, surviving=(0, 0))
        assert torch.equal(got[1], point(3).expand(2, 4))


def test_mean_averages_where_the_left_neighbour_is_known():
    entry, state, laws = recorded("mean")
    got = at(entry, state, 3, 4)
    assert torch.allclose(got[0], torch.stack([(laws[0, 0] + laws[0, 2]) / 2, laws[0, 1]]))
    assert torch.equal(got[1], laws[1, [0, 1]])


def test_newer_laws_replace_older_ones_and_the_ring_forgets_only_what_is_out_of_reach():
    entry, state, _ = recorded("above")
    newest = {}
    for start in range(2, 9):
        laws = random_laws(8, 4, zeros=0, seed=start).view(2, 4, 4)
        window = window_of(laws[:, :3], laws[:, :3], bonus=laws[:, 3:])
        window.start = torch.tensor([start, start])
        entry.record(window)
        newest.update({start + slot: laws[:, slot] for slot in range(4)})
        state.committed = window.start + 1
        for position in range(start + 3, start + 7):
            source = position - 3 if position - 3 < start + 4 else position - 6
            assert torch.equal(at(entry, state, position, surviving=(3, 3))[:, 0], newest[source])


def test_copies_are_point_masses_on_committed_tokens_or_surviving_drafts():
    entry, state, _ = recorded("left-copy")
    got = at(entry, state, 1, 3, 9)
    assert torch.equal(got[0], torch.stack([point(3), point(2), point(2)]))
    assert torch.equal(got[1], torch.stack([point(3), point(1), point(1)]))
    entry, state, _ = recorded("above-copy")
    got = at(entry, state, 3, 4, 5)
    assert torch.equal(got[0], torch.stack([point(3), point(1), point(2)]))
    assert torch.equal(got[1], torch.stack([point(3), point(1), UNIFORM]))


def test_uniform():
    entry, state, _ = recorded("uniform")
    assert torch.equal(at(entry, state, 1, 7), UNIFORM.expand(2, 2, 4))


def test_kept_rows_keep_their_laws():
    entry, state, laws = recorded("left")
    entry.keep(torch.tensor([1]))
    state.keep(torch.tensor([1]), [1])
    got = entry.laws(state, torch.tensor([[3]]), torch.tensor([[1]]), torch.tensor([1]))
    assert torch.equal(got[0, 0], laws[1, 1])
