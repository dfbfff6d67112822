import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it; also for the interpreters that tests start

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # tests share helpers.py

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_torch_seed():
    torch.manual_seed(0)
