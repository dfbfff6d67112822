import pytest
import torch

from csd_pipeline.evaluation.gpu_suite.bandwidth import count_bytes, peak_bandwidth, used_bandwidth
from csd_pipeline.evaluation.gpu_suite.random_target import random_target
from csd_pipeline.evaluation.gpu_suite.shapes import SHAPES


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_of_a_pass_counted_by_hand(dtype, size):
    attention, mlp, norms = 4 * 32 * 32, 3 * 32 * 48, 2 * 32
    aligner = (8 * 32 + 32) + (32 * 32 + 32)
    head = (32 * 32 + 32) + (32 * 64 + 64)
    weights = 2 * (attention + mlp + norms) + 32 + aligner + head
    slot = 2 * 2 * 2 * 32  # layers, keys and values, guidance rows, width
    # after a prompt of 32 tokens: 1 .. 32 committed tokens are within 64 slots, 33 .. 63 within 128
    slots = (32 * 64 + 31 * 128) / 63
    counted = count_bytes(random_target(SHAPES["tiny"], "cpu", dtype))
    assert counted["weight_bytes"] == size * weights
    assert counted["cache_bytes"]["eager"] == pytest.approx(size * slot * slots)
    assert counted["cache_bytes"]["captured"] == size * slot * 128  # all of it, (32 + 64 + 1) up to a multiple of 64


def test_rate_and_share_of_the_peak():
    counted = {"weight_bytes": 900, "cache_bytes": {"eager": 100, "captured": 300}}
    plain = {"eager": {"seconds_per_pass": 2.0}, "captured": "not measured: no time left"}
    figures = used_bandwidth(counted, plain, peak=1000.0)
    assert figures == {
        "eager": {"bytes_per_second": 500.0, "share_of_peak": 0.5},
        "captured": "not measured: no time left",
    }
    assert used_bandwidth(counted, plain, None)["eager"] == {"bytes_per_second": 500.0, "share_of_peak": None}


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 2.0e12),
        ("NVIDIA H100 80GB HBM3", 3.35e12),
        ("NVIDIA H200", 4.8e12),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("", None),
    ],
)
def test_only_known_devices_have_a_peak(name, peak):
    assert peak_bandwidth(name) == peak
