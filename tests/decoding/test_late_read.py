"""A report is what it was when its pass ended, whenever it is read."""

import pytest
import torch

from csd_pipeline.decoding.late_read import LateRead


@pytest.mark.parametrize("late", [False, True])
def test_a_report_survives_the_next_pass(late):
    report = torch.tensor([3.0, 256.0, 7.0, 0.5])
    kept = LateRead(report, [4, None, 2], late)
    report.fill_(torch.nan)
    assert kept.wait() == ([(4, 3), (2, 7)], 0.5)
