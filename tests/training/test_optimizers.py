"""Muon and the learning-rate schedule."""

import pytest
import torch
from torch import nn

from csd_pipeline.training.embedded.optimizers import Muon, learning_rate_scale, orthogonalise


@pytest.mark.parametrize("shape", [(3, 48, 48), (2, 96, 32), (2, 32, 96)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert orthogonalise(matrices).shape == shape
    assert values.max() < 1.3 and values.median() > 0.65


def test_muon_step_has_the_size_of_its_learning_rate():
    weight = nn.Parameter(torch.zeros(64, 32))
    optimizer = Muon([weight], lr=0.1, weight_decay=0.0)
    weight.grad = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)) * 1e-4
    optimizer.step()
    largest = torch.linalg.svdvals(weight.detach()).max()
    assert 0.08 < largest / 2**0.5 < 0.13


def test_muon_minimises_a_quadratic():
    weight, wanted = nn.Parameter(torch.zeros(16, 16)), torch.eye(16)
    optimizer = Muon([weight], lr=0.02, weight_decay=0.0)
    for _ in range(80):
        optimizer.zero_grad()
        (weight - wanted).square().sum().backward()
        optimizer.step()
    assert (weight - wanted).square().sum() < 0.5


def test_schedule_warms_up_stays_and_decays_linearly():
    scales = [learning_rate_scale(step, 100, 40, 10) for step in range(100)]
    assert scales[0] == pytest.approx(0.1) and scales[9:60] == [1.0] * 51
    assert scales[80] == pytest.approx(0.5) and scales[99] == pytest.approx(1 / 40)


def test_longer_schedule_agrees_before_the_decay():
    assert learning_rate_scale(30, 100, 40, 10) == learning_rate_scale(30, 500, 100, 10)
