import pytest
import torch

from csd_pipeline.targets import adapter_for
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget


def test_adapters_are_found_by_the_class_of_the_model():
    assert isinstance(adapter_for(ToyTarget()), ToyAdapter)
    with pytest.raises(
        ValueError, match="no target adapter for Linear; supported: .*JanusForConditionalGeneration, .*ToyTarget"
    ):
        adapter_for(torch.nn.Linear(1, 1))
