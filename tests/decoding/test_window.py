import math

import pytest
import torch
from helpers import T3_P, T3_Q, random_laws, window_of

from csd_pipeline.decoding.window import entropy


def test_numbers_of_the_three_symbol_example():
    window = window_of([[T3_P] * 3], [[T3_Q] * 3], drafts=[[0, 1, 2]])
    assert window.entropy[0].tolist() == pytest.approx([1.029653] * 3, abs=1e-6)
    assert window.tv[0].tolist() == pytest.approx([0.4] * 3, abs=1e-6)
    assert window.vanilla[0].tolist() == pytest.approx([1, 1, 1 / 3], abs=1e-6)
    assert window.p_draft[0].tolist() == pytest.approx(T3_P) and window.q_draft[0].tolist() == pytest.approx(T3_Q)


def test_entropy_is_in_nats_and_zero_times_log_zero_is_zero():
    assert entropy(torch.tensor([1.0, 0.0, 0.0])) == 0
    assert entropy(torch.full((16384,), 1 / 16384)).item() == pytest.approx(math.log(16384), abs=1e-4)
    assert torch.isfinite(entropy(random_laws(100, 9))).all()


def test_positions_and_valid_slots_follow_each_image():
    window = window_of(random_laws(6, 3).view(2, 3, 3), random_laws(6, 3, seed=1).view(2, 3, 3), lengths=[3, 1])
    window.start = torch.tensor([4, 9])
    assert window.positions.tolist() == [[4, 5, 6, 7], [9, 10, 11, 12]]
    assert window.valid.tolist() == [[True] * 3, [True, False, False]]
    assert window.p.shape == (2, 3, 3)


def test_acceptance_is_a_probability_where_a_law_has_zeros():
    p, q = torch.tensor([[0.5, 0.5, 0.0, 0.0]]), torch.tensor([[0.0, 0.4, 0.6, 0.0]])
    window = window_of(p.expand(4, 1, 4), q.expand(4, 1, 4), drafts=[[0], [1], [2], [3]])
    assert torch.isfinite(window.vanilla).all() and window.vanilla[1:3, 0].tolist() == [1, 0]
