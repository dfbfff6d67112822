import itertools
import os

import pytest
import torch

from csd_pipeline.cli import devices, processor_bfloat16


def test_auto_dtype_follows_the_device(monkeypatch):
    monkeypatch.setattr(devices, "supports_bfloat16", lambda device: True)
    assert devices.choose_dtype("auto", "cuda")[0] == "bfloat16"
    monkeypatch.setattr(devices, "supports_bfloat16", lambda device: False)
    name, reason = devices.choose_dtype("auto", "cuda:1")
    assert name == "float16"
    assert "bfloat16" in reason
    with pytest.raises(ValueError, match="cuda does not compute in bfloat16"):
        devices.choose_dtype("bf16", "cuda")


def test_short_names_and_unknown_ones():
    assert devices.choose_dtype("fp16", "cpu")[0] == "float16"
    with pytest.raises(ValueError, match="did you mean 'float32'"):
        devices.choose_dtype("flaot32", "cpu")
    with pytest.raises(ValueError, match="did you mean 'cuda'"):
        devices.choose_device("cudda")
    for wanted in ("cpu:x", "cpu:1", "cpu:"):
        with pytest.raises(ValueError, match=f"--device {wanted}: there is no device number"):
            devices.choose_device(wanted)
    assert devices.choose_device("cpu:0")[0] == "cpu:0"


def test_auto_takes_no_number():
    for wanted in ("auto:3", "auto:0", "auto:"):
        with pytest.raises(ValueError, match=f"--device {wanted}: auto picks the device itself"):
            devices.choose_device(wanted)


def test_threads_leave_busy_cores_alone(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "available_cores", lambda: 8)
    monkeypatch.setattr(devices, "_physical_cores", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0), raising=False)
    assert devices.choose_threads(None)[0] == 4
    monkeypatch.setattr(os, "getloadavg", lambda: (5.0, 0.0, 0.0))
    assert devices.choose_threads(None)[0] == 3
    monkeypatch.setattr(os, "getloadavg", lambda: (20.0, 0.0, 0.0))
    assert devices.choose_threads(None)[0] == 2
    assert devices.choose_threads(7) == (7, "as asked")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert devices.choose_threads(None)[0] == 1


@pytest.mark.parametrize(
    ("instructions", "gain", "dtype", "reason"),
    [
        (False, None, "float32", "no instructions for bfloat16"),
        (True, 2.04, "bfloat16", "a decoder layer is 2.0x as fast in it as in float32"),
        (True, 1.1, "float32", "only 1.1x as fast"),
        (True, 0.3, "float32", "only 0.3x as fast"),
    ],
)
def test_a_processor_computes_in_bfloat16_where_that_is_faster(monkeypatch, instructions, gain, dtype, reason):
    """Without the instructions nothing is measured."""

    def measured():
        assert gain is not None
        return gain

    monkeypatch.setattr(devices, "computes_in_bfloat16", lambda: instructions)
    monkeypatch.setattr(devices, "bfloat16_speedup", measured)
    chosen, why = devices.choose_dtype("auto", "cpu")
    assert chosen == dtype and reason in why
    assert devices.choose_dtype("float32", "cpu")[0] == "float32"


@pytest.mark.parametrize(
    ("told", "computes"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False, "architecture": "x86_64"}, False),
        ({"avx512_bf16": True, "architecture": "x86_64"}, True),
        ({"amx_tile": True, "amx_bf16": True, "architecture": "x86_64"}, True),
        ({"neon": True, "bf16": False, "architecture": "arm64"}, False),
        ({"neon": True, "bf16": True, "architecture": "arm64"}, True),
        ({"neon": True, "sve_bf16": True, "architecture": "arm64"}, True),
    ],
)
def test_torch_tells_the_instructions(monkeypatch, told, computes):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told, raising=False)
    assert processor_bfloat16.computes_in_bfloat16() is computes


def test_instructions_a_torch_can_not_tell_of_are_not_there(monkeypatch):
    for name in ("get_capabilities", "_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not processor_bfloat16.computes_in_bfloat16()
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    assert processor_bfloat16.computes_in_bfloat16()


def test_the_measurement_is_a_ratio_of_times(monkeypatch):
    """A clock by which the products take 6 and 2 in turn."""
    now, steps = [0.0], itertools.cycle((0.0, 6.0, 0.0, 2.0))

    def clock():
        now[0] += next(steps)
        return now[0]

    monkeypatch.setattr(processor_bfloat16.time, "perf_counter", clock)
    assert processor_bfloat16.bfloat16_speedup() == pytest.approx(3.0)


@pytest.mark.parametrize("command", [("generate",), ("phrases", "-o", "library.safetensors")])
def test_threads_are_set_before_a_number_format_is_measured(csd, monkeypatch, command):
    order = []

    def measured():
        order.append("measured")
        raise ValueError("far enough")

    monkeypatch.setattr(torch, "set_num_threads", order.append)
    monkeypatch.setattr(devices, "computes_in_bfloat16", lambda: True)
    monkeypatch.setattr(devices, "bfloat16_speedup", measured)
    result = csd(*command, "a fox", "--model", "a-folder", "--threads", 3, "--device", "cpu")
    assert "far enough" in result.output and order == [3, "measured"]
