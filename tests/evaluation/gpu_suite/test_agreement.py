import pytest
import torch

from csd_pipeline.evaluation.gpu_suite.agreement import agreement, compare


@pytest.mark.parametrize(
    ("other", "first", "before", "equal"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], None, 1.0, 1.0),
        ([1, 2, 0, 4, 5, 0, 7, 8], 2, 0.25, 0.75),
        ([0, 2, 3, 4, 5, 6, 7, 8], 0, 0.0, 0.875),
    ],
)
def test_shares_before_the_first_difference_and_in_all(other, first, before, equal):
    figure = compare(torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]]), torch.tensor([other]))
    assert figure == {"tokens": 8, "first_difference": first, "share_before_it": before, "share_equal": equal}


def test_in_float32_exact_decoding_is_plain_decoding(tiny):
    assert agreement(tiny) == {"tokens": 64, "first_difference": None, "share_before_it": 1.0, "share_equal": 1.0}
