"""Traced whole, used again, and the same decisions. The compiler's back end is left out: no C++ compiler is needed."""

import pytest
import torch
from helpers import open_toy
from helpers_janus import left_padded, prompt_batch, tiny_janus

from csd_pipeline.alignment import FILTERS
from csd_pipeline.decoding import CompiledPass, Warp, decode, window_pass
from csd_pipeline.decoding.compiled_pass import CompiledFunction
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import EntropyRelaxation, Exact
from csd_pipeline.targets import adapter_for
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

MODEL = tiny_janus("sdpa")
WARP = Warp(guidance_scale=2.0, temperature=0.8)
LENGTHS = (3, 5, 4, 9, 6)


class CountingBackend:
    """Runs traced graphs as they are, and counts them."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, _):
        self.graphs += 1
        return graph.forward


def draw(prompts, seeds, run_pass=None, **parts):
    adapter, drafter = adapter_for(MODEL), parts["drafter"]
    session = adapter.open(prompt_batch(*left_padded(*prompts)), drafter.window + drafter.extra_tokens)
    options = {} if run_pass is None else {"run_pass": run_pass}
    parts = {"relaxation": Exact(), **parts}
    return decode(session, adapter, seeds=seeds, warp=WARP, maps=True, **options, **parts)


def same(mine, other):
    assert torch.equal(mine.tokens, other.tokens)
    for one, two in zip(mine.traces, other.traces, strict=True):
        assert one.accepted == two.accepted and one.drift == pytest.approx(two.drift, abs=1e-5)
        assert all(torch.allclose(one.maps[n], two.maps[n], atol=1e-4, equal_nan=True) for n in one.maps)


METHODS = {
    "plain": {"drafter": JacobiDrafter(1, "gumbel")},
    "gumbel": {"drafter": JacobiDrafter(5, "gumbel")},
    "coupled": {"drafter": JacobiDrafter(5, "coupled", "left")},
    "relaxed": {
        "drafter": JacobiDrafter(5, "fresh", "uniform"),
        "relaxation": EntropyRelaxation(0.5, relax_fresh=True),
        "alignment_filter": FILTERS["budget"](budget=0.2),
    },
}


@pytest.mark.parametrize(
    ("name", "lengths"), [(name, LENGTHS if name == "gumbel" else LENGTHS[:2]) for name in METHODS]
)
def test_two_traces_serve_prompts_of_any_length_and_decide_alike(name, lengths):
    backend = CountingBackend()
    compiled, parts = CompiledPass(backend=backend), METHODS[name]
    for seed, length in enumerate(lengths):
        prompts = [list(range(2, 2 + length))]
        same(draw(prompts, [seed], compiled, **parts), draw(prompts, [seed], **parts))
    assert 1 <= backend.graphs <= 2


def test_settings_that_change_within_an_image_are_seen():
    """Passes are checked against their trace once per run: what a callback changes must count as another pass."""

    def drawn(run_pass=None):
        warp = Warp(guidance_scale=2.0, temperature=0.8)

        def stronger(progress):
            warp.guidance_scale = 4.0 if 5 <= progress.passes < 9 else 2.0  # and back

        adapter, options = adapter_for(MODEL), {} if run_pass is None else {"run_pass": run_pass}
        session = adapter.open(prompt_batch(*left_padded([2, 3, 4])), 3)
        parts = {"drafter": JacobiDrafter(3, "gumbel"), "relaxation": Exact(), "warp": warp}
        return decode(session, adapter, seeds=[1], on_pass=stronger, maps=True, **parts, **options)

    plain = drawn()
    same(drawn(CompiledPass(backend=CountingBackend())), plain)
    assert not torch.equal(plain.tokens, draw([[2, 3, 4]], [1], drafter=JacobiDrafter(3, "gumbel")).tokens)


def test_a_model_changed_between_images_is_seen():
    model, drafter = tiny_janus("sdpa"), JacobiDrafter(3, "gumbel")
    compiled = CompiledPass(backend=CountingBackend())

    def drawn(**options):
        adapter = adapter_for(model)
        session = adapter.open(prompt_batch(*left_padded([2, 3, 4])), 3)
        return decode(session, adapter, seeds=[1], warp=WARP, drafter=drafter, relaxation=Exact(), maps=True, **options)

    before = drawn(run_pass=compiled)
    layer = model.model.language_model.layers[0].mlp
    layer.down_proj = torch.nn.Linear(layer.down_proj.in_features, layer.down_proj.out_features)  # with a bias
    torch.nn.init.normal_(layer.down_proj.weight)
    after = drawn()
    same(drawn(run_pass=compiled), after)
    assert not torch.equal(before.tokens, after.tokens)


def test_traces_are_called_without_looking_for_them_in_every_pass(monkeypatch):
    compiled = CompiledPass(backend=CountingBackend())
    draw([[2, 3, 4]], [0], compiled, **METHODS["gumbel"])
    looked, look = [], CompiledFunction._trace
    monkeypatch.setattr(CompiledFunction, "_trace", lambda *given: looked.append(look(*given)) or looked[-1])
    result = draw([[2, 3, 4]], [1], compiled, **METHODS["gumbel"])
    assert 1 <= len(looked) < result.traces[0].nfe and None not in looked


@pytest.mark.parametrize("options", [{"mode": "default"}, {"options": {"triton.cudagraphs": True}}])
def test_where_the_compiler_may_capture_graphs_it_is_called_every_time(options, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(CompiledFunction, "_trace", None)
    same(
        draw([[2, 3, 4]], [0], CompiledPass(**options), **METHODS["gumbel"]),
        draw([[2, 3, 4]], [0], **METHODS["gumbel"]),
    )


@pytest.mark.parametrize("missing", ["_debug_get_cache_entry_list", None])
def test_without_traces_to_call_everything_is_compiled_as_usual(missing, monkeypatch):
    """Where torch does not tell its traces, and where it was told to compile nothing."""
    plain = draw([[2, 3, 4]], [0], **METHODS["gumbel"])
    if missing:
        monkeypatch.delattr(torch._dynamo.eval_frame, missing)
        same(draw([[2, 3, 4]], [0], CompiledPass(backend=CountingBackend()), **METHODS["gumbel"]), plain)
    else:
        with torch.compiler.set_stance("force_eager"):
            same(draw([[2, 3, 4]], [0], CompiledPass(backend=CountingBackend()), **METHODS["gumbel"]), plain)


def test_a_batch_whose_images_finish_one_by_one_is_traced_as_one():
    backend = CountingBackend()
    compiled, prompts = CompiledPass(backend=backend), [[2, 3, 4], [5, 6], [7, 8, 9, 10]]
    for seeds in ([1, 2, 3], [4, 5, 6]):
        plain = draw(prompts, seeds, **METHODS["gumbel"])
        assert len({trace.nfe for trace in plain.traces}) > 1
        same(draw(prompts, seeds, compiled, **METHODS["gumbel"]), plain)
    assert backend.graphs <= 2


@pytest.mark.parametrize(
    "options", [{}, {"mode": "max-autotune"}, {"backend": "eager"}, {"options": {"max_autotune": True}}]
)
def test_options_go_to_the_compiler_as_they_are(options):
    """torch.compile takes either a mode or options, and only its own back end knows them."""
    compiled = CompiledPass(**options)
    CompiledFunction(window_pass, compiled.options)
    assert options.items() <= compiled.options.items() and compiled.options["fullgraph"]


def test_another_method_is_traced_anew():
    backend = CountingBackend()
    compiled = CompiledPass(backend=backend)
    for name in ("gumbel", "relaxed"):
        before = backend.graphs
        same(draw([[2, 3, 4]], [0], compiled, **METHODS[name]), draw([[2, 3, 4]], [0], **METHODS[name]))
        assert backend.graphs > before


def test_a_window_wider_than_the_image():
    model = ToyTarget(3, 2, 2, scale=1.2, seed=1)
    adapter, drafter = ToyAdapter(model), JacobiDrafter(16, "gumbel")

    def run(**options):
        session = open_toy(adapter, [0, 0], guided=False, window=16)
        return decode(
            session, adapter, seeds=[1, 2], warp=Warp(), drafter=drafter, relaxation=Exact(), **options
        ).tokens

    assert torch.equal(run(), run(run_pass=CompiledPass(backend=CountingBackend())))
