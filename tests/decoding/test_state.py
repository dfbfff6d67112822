import torch
from helpers import random_laws, window_of

from csd_pipeline.decoding.noise import seed_words
from csd_pipeline.decoding.state import DecodingState
from csd_pipeline.decoding.verification import Verification
from csd_pipeline.targets.base import Grid


def outcome_of(accepted, next_token, length=0) -> Verification:
    none = torch.zeros(len(accepted), length)
    return Verification(torch.tensor(accepted), torch.tensor(next_token), none, none)


def started(grid: Grid, images: int) -> DecodingState:
    return DecodingState.start(grid, 9, seed_words(list(range(images))))


def test_every_image_commits_its_own_length():
    state = started(Grid(2, 4), 3)
    empty = window_of(torch.zeros(3, 0, 9), torch.zeros(3, 0, 9))
    empty.start = state.committed.clone()
    state.commit(empty, outcome_of([0, 0, 0], [1, 2, 3]))
    assert state.committed.tolist() == [1, 1, 1] and state.last_tokens.tolist() == [[1], [2], [3]]
    laws = random_laws(9, 9).view(3, 3, 9)
    window = window_of(laws, laws, [[4, 5, 6]] * 3)
    state.commit(window, outcome_of([0, 2, 3], [7, 8, 7], length=3))
    committed = [row[:count] for row, count in zip(state.tokens.tolist(), (2, 4, 5), strict=True)]
    assert committed == [[1, 7], [2, 4, 5, 8], [3, 4, 5, 6, 7]]
    assert state.committed.tolist() == [2, 4, 5] and state.passes.tolist() == [2, 2, 2]
    assert state.room(4).tolist() == [4, 3, 2] and state.last_tokens.flatten().tolist() == [7, 8, 7]


def test_kept_rows_are_whole():
    state = started(Grid(1, 3), 3)
    state.tokens[:, 0], state.committed = torch.tensor([5, 6, 7]), torch.tensor([1, 2, 3])
    noise = state.noise.gumbel(torch.zeros(3, 1, dtype=torch.int64), 4)
    state.keep(torch.tensor([2, 0]), [3, 1])
    assert state.tokens[:, 0].tolist() == [7, 5] and state.committed.tolist() == state.counts == [3, 1]
    assert torch.equal(state.noise.gumbel(torch.zeros(2, 1, dtype=torch.int64), 4), noise[[2, 0]])


def test_upcoming_positions_follow_the_count_asked_for():
    state = started(Grid(2, 3), 2)
    assert state.upcoming(2) is state.upcoming(2)
    assert state.upcoming(3).shape == (2, 3)


def test_forced_tokens_by_position():
    state = started(Grid(2, 2, torch.tensor([-1, 4, -1, 4])), 1)
    assert state.forced(torch.tensor([[0, 1, 2, 3, 4, 90]])).tolist() == [[-1, 4, -1, 4, -1, -1]]
    assert started(Grid(2, 2), 1).forced(torch.tensor([[0]])) is None
