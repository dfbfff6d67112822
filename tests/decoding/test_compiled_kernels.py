"""Really compiled, which needs a C++ compiler: the same decisions, in few kernels."""

import re

import pytest
import torch
from helpers import run_toy
from torch._inductor.utils import run_and_get_code

from csd_pipeline.decoding import CompiledPass, Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.presets import build_parts, read_preset
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets.toy import ToyTarget

MODEL = ToyTarget(5, 2, 4, scale=1.2, seed=1)
METHODS = {
    "gumbel": {"drafter": JacobiDrafter(5, "gumbel"), "relaxation": Exact()},
    "balanced": build_parts(read_preset("balanced")) | {"drafter": JacobiDrafter(5, "coupled")},
}


def kernels(code: str) -> list[str]:
    """Names of what a compiled graph calls: functions of its own, which are fused kernels, and those of libraries."""
    body = code[code.index("def call(") :]
    return re.findall(
        r"^ +(?:\w+ = )?(cpp_fused_\w+|torch\.ops\.\w+\.[\w.]+|extern_kernels\.\w+)\(", body, re.MULTILINE
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_pass_is_at_most_forty_kernels_beside_the_forward(name):
    options = {"warp": Warp(2.0, 0.8), **METHODS[name]}
    compiled = CompiledPass(dynamic=False)
    _, codes = run_and_get_code(lambda: run_toy(MODEL, seeds=[0], run_pass=compiled, **options))
    assert len(codes) == 1 and 0 < len(kernels(codes[0])) <= 40  # the toy's forward among them
    for seed in range(20):
        mine, plain = (run_toy(MODEL, seeds=[seed], run_pass=way, **options) for way in (compiled, None))
        assert torch.equal(mine.tokens, plain.tokens) and mine.traces[0].accepted == plain.traces[0].accepted
