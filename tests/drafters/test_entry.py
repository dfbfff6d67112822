import torch
from helpers import random_laws, window_of

from csd_pipeline.decoding.noise import seed_words
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.drafters.entry import ENTRIES, EntryLaws
from csd_pipeline.targets.base import Grid

UNIFORM = torch.full((4,), 0.25)


def recorded(init: str, lengths=(2, 1), window=7):
    """Two images on rows of three: token 3 committed, laws known for positions 0 .. length."""
    state = DecodingState.start(Grid(4, 3), 4, seed_words([1, 2]))
    state.committed, state.tokens[:, 0], state.last_tokens[:] = torch.tensor([1, 1]), 3, 3
    laws = random_laws(6, 4, zeros=0).view(2, 3, 4)
    entry = EntryLaws(init, state, window)
    window = window_of(laws[:, :2], laws[:, :2], lengths=list(lengths), bonus=laws[:, 2:])
    window.start = torch.zeros(2, dtype=torch.int64)
    entry.record(window)
    return entry, state, laws


def at(entry, state, *positions, drafts=((1, 2, 0), (1, 0, 0)), surviving=(2, 1)):
    positions = torch.tensor(positions).expand(2, -1)
    newest = state.committed + torch.tensor(surviving) - 1
    return entry.laws(state, positions, torch.tensor(drafts), newest)


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
    entry, state, _ = recorded("above", window=4)
    newest = {}
    for start in range(2, 9):
        laws = random_laws(8, 4, zeros=0, seed=start).view(2, 4, 4)
        window = window_of(laws[:, :3], laws[:, :3], bonus=laws[:, 3:])
        window.start = torch.tensor([start, start])
        entry.record(window)
        newest.update({start + slot: laws[:, slot] for slot in range(4)})
        state.committed = window.start + 1
        for position in range(start + 4, start + 8):
            source = position - 3 if position - 3 < start + 4 else position - 6
            assert torch.equal(at(entry, state, position, surviving=(3, 3))[:, 0], newest[source])


def test_copies_are_point_masses_on_committed_tokens_or_surviving_drafts():
    entry, state, _ = recorded("left-copy")
    got = at(entry, state, 3, 9)
    assert torch.equal(got[0], torch.stack([point(2), point(2)]))
    assert torch.equal(got[1], torch.stack([point(1), point(1)]))
    assert torch.equal(at(entry, state, 1, surviving=(0, 0)), point(3).expand(2, 1, 4))
    entry, state, _ = recorded("above-copy")
    got = at(entry, state, 3, 4, 5)
    assert torch.equal(got[0], torch.stack([point(3), point(1), point(2)]))
    assert torch.equal(got[1], torch.stack([point(3), point(1), UNIFORM]))


def test_uniform():
    entry, state, _ = recorded("uniform")
    assert torch.equal(at(entry, state, 3, 7), UNIFORM.expand(2, 2, 4))


def test_surviving_drafts_have_the_recorded_laws_of_their_own_positions():
    for init in ENTRIES:
        entry, state, laws = recorded(init)
        got = at(entry, state, 1, 2)
        assert torch.equal(got[0], laws[0, 1:]) and torch.equal(got[1, 0], laws[1, 1])


def test_laws_of_padding_take_no_slot_that_is_read():
    """A window that reaches beyond the last position is recorded whole; every law known before is still found."""
    for init in ("left", "above", "mean"):
        state = DecodingState.start(Grid(4, 3), 4, seed_words([1, 2]))
        entry, newest = EntryLaws(init, state, window=4), {}
        for start in range(12):
            laws = random_laws(8, 4, zeros=0, seed=start).view(2, 4, 4)
            length = min(3, 11 - start)  # drafts of an image of twelve tokens
            window = window_of(laws[:, :3], laws[:, :3], lengths=[length, length], bonus=laws[:, 3:])
            window.start = torch.tensor([start, start])
            entry.record(window)
            newest.update({start + slot: laws[:, slot] for slot in range(length + 1)})
            state.committed = window.start + 1
            seen = start + length + 1
            got = at(entry, state, *range(seen - 3, seen + 3), surviving=(length, length))
            for law, position in zip(got.unbind(1), range(seen - 3, seen + 3), strict=True):
                left, above = min(position, seen) - 1, position - 3 if position - 3 < seen else position - 6
                if position <= start:
                    continue
                if position < seen:
                    expected = newest[position]
                elif init == "left":
                    expected = newest[left]
                elif above < 0:
                    continue
                elif init == "above" or left != position - 1:
                    expected = newest[above]
                else:
                    expected = (newest[above] + newest[left]) / 2
                assert torch.allclose(law, expected)


def with_line_ends(init: str):
    """Rows of two codes and the mark 4; the first row is committed as 3, 1, 4 and its laws are known."""
    state = DecodingState.start(Grid.with_line_ends(3, 2, 4), 5, seed_words([1]))
    state.committed, state.tokens[0, :3], state.last_tokens[:] = torch.tensor([3]), torch.tensor([3, 1, 4]), 4
    laws = random_laws(3, 5, zeros=0)
    laws[2] = torch.eye(5)[4]
    entry = EntryLaws(init, state, window=4)
    window = window_of(laws[None, :2], laws[None, :2], bonus=laws[None, 2:])
    window.start = torch.tensor([0])
    entry.record(window)
    none = torch.zeros(1, 3, dtype=torch.int64)
    return entry.laws(state, torch.tensor([[3, 4, 6]]), none, torch.tensor([2]))[0], laws


def test_a_line_mark_is_nobodys_neighbour():
    got, laws = with_line_ends("left")
    assert torch.equal(got, laws[[1, 1, 1]])
    got, laws = with_line_ends("above")
    assert torch.equal(got, laws[[0, 1, 0]])
    got, laws = with_line_ends("mean")  # the free position before the row's start is known, that before the others not
    assert torch.allclose(got, torch.stack([(laws[0] + laws[1]) / 2, laws[1], laws[0]]))
    assert torch.equal(with_line_ends("left-copy")[0], torch.eye(5)[[1, 1, 1]])
    assert torch.equal(with_line_ends("above-copy")[0], torch.eye(5)[[3, 1, 3]])
    assert torch.equal(with_line_ends("uniform")[0], torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0]).expand(3, 5))


def test_with_line_marks_too_the_newest_surviving_draft_is_repeated_in_the_first_row():
    for init in ("above", "mean"):
        state = DecodingState.start(Grid.with_line_ends(3, 4, 4), 5, seed_words([1]))
        state.committed, state.tokens[0, 0], state.last_tokens[:] = torch.tensor([1]), 3, 3
        entry = EntryLaws(init, state, window=4)
        window = window_of(random_laws(1, 5)[None], random_laws(1, 5)[None], bonus=random_laws(1, 5)[None])
        window.start = torch.tensor([0])
        entry.record(window)
        got = entry.laws(state, torch.tensor([[1, 2, 3]]), torch.tensor([[2, 0, 0]]), torch.tensor([1]))
        assert torch.equal(got[0, 1:], torch.eye(5)[[2, 2]])


def test_where_everything_before_is_forced_the_law_is_uniform():
    for init in ENTRIES:
        state = DecodingState.start(Grid(1, 3, torch.tensor([3, -1, -1])), 4, seed_words([1]))
        state.committed, state.tokens[0, 0], state.last_tokens[:] = torch.tensor([1]), 3, 3
        entry = EntryLaws(init, state, window=3)
        window = window_of(torch.zeros(1, 0, 4), torch.zeros(1, 0, 4), bonus=point(3).view(1, 1, 4))
        window.start = torch.tensor([0])
        entry.record(window)
        got = entry.laws(state, torch.tensor([[1, 2]]), torch.zeros(1, 2, dtype=torch.int64), torch.tensor([0]))
        assert torch.allclose(got, torch.tensor([1, 1, 1, 0]) / 3)


def test_kept_rows_keep_their_laws():
    entry, state, laws = recorded("left")
    entry.keep(torch.tensor([1]))
    state.keep(torch.tensor([1]), [1])
    got = entry.laws(state, torch.tensor([[3]]), torch.tensor([[1]]), torch.tensor([1]))
    assert torch.equal(got[0, 0], laws[1, 1])


def test_runs_share_their_table_where_nothing_is_forced():
    def table(grid, init="mean", window=4):
        return EntryLaws(init, DecodingState.start(grid, 5, seed_words([1])), window).table

    assert table(Grid(3, 3)) is table(Grid(3, 3))
    others = [table(Grid(4, 3)), table(Grid(3, 4)), table(Grid(3, 3), "left"), table(Grid(3, 3), window=5)]
    assert len({other.data_ptr() for other in others} | {table(Grid(3, 3)).data_ptr()}) == 5
    marks = [table(Grid.with_line_ends(3, 2, 4)) for _ in range(2)]  # grids of one size may force different positions
    assert marks[0] is not marks[1] and torch.equal(*marks)
