"""Really compiled, which needs a C++ compiler: the same decisions, in few kernels."""

import re

import pytest
import torch
from helpers import run_toy
from helpers_janus import left_padded, prompt_batch, tiny_janus
from torch._inductor.utils import run_and_get_code

from csd_pipeline.decoding import CompiledPass, Warp, WatchedPass, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.presets import build_parts, read_preset
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets import adapter_for
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


class LastRun(WatchedPass):
    """Keeps the run of the last pass."""

    run = None

    def __call__(self, run, length):
        self.run = run
        return super().__call__(run, length)


def new_shapes(code: str) -> list[tuple[str, ...]]:
    """Shapes of the tensors a compiled graph makes, as written; a size that is not fixed has a letter."""
    body = code[code.index("def call(") :]
    return [tuple(re.findall(r"\w+", shape)) for shape in re.findall(r"empty_strided_\w+\(\(([^)]*)\)", body)]


@pytest.mark.parametrize("name", METHODS)
def test_a_pass_copies_neither_the_cache_nor_the_kept_laws(name):
    """Both are written in place: a copy of them would cost as much as reading them, in every layer and pass."""
    model, compiled = tiny_janus("sdpa"), LastRun(CompiledPass())
    adapter = adapter_for(model)
    session = adapter.open(prompt_batch(*left_padded([3])), 5)

    def draw():
        return decode(session, adapter, seeds=[0], warp=Warp(2.0, 0.8), run_pass=compiled, **METHODS[name])

    _, codes = run_and_get_code(draw)
    rows, heads, capacity, width = session.cache.layers[0].keys.shape
    laws = compiled.run.draft_run.entry.ring.rows.shape
    assert codes and capacity > 5
    for code in codes:
        made = new_shapes(code)
        assert ("2", "5", str(model.config.text_config.hidden_size)) in made  # the pattern finds what is made
        for shape in made:
            assert shape != tuple(map(str, laws))
            if len(shape) == 4 and (shape[0], shape[1], shape[3]) == (str(rows), str(heads), str(width)):
                assert shape[2] == "5"  # the new keys themselves
