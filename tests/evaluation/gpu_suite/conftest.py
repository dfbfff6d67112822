import pytest
import torch

from csd_pipeline.evaluation.gpu_suite.random_target import random_target
from csd_pipeline.evaluation.gpu_suite.shapes import SHAPES


@pytest.fixture(scope="session")
def tiny():
    return random_target(SHAPES["tiny"], "cpu", torch.float32)
