import pytest
import torch
from gpu_stand_ins import put_in_place

from csd_pipeline.evaluation.gpu_suite.forward import FORWARDS, BareForward, time_forwards
from csd_pipeline.evaluation.gpu_suite.timing import REPEATS, WARM_UP
from csd_pipeline.targets.base import CachedSession


def test_forwards_stand_in_the_middle_of_an_image_and_read_both_rows(tiny):
    forward, sizes = BareForward(tiny), []
    for window in (1, 16, 64):
        logits = forward.of(window)()
        sizes.append((tuple(logits.shape), forward.session.limit))
    assert forward.position == 32
    # prompt 32, 32 committed tokens and the window less the last of those, up to multiples of 64
    assert sizes == [((2, 1, 64), 64), ((2, 16, 64), 128), ((2, 64, 64), 128)]


@pytest.mark.parametrize(("way", "calls"), [("eager", 1 + WARM_UP + REPEATS), ("graph", 2)])
def test_a_graph_runs_no_python_after_its_capture(tiny, monkeypatch, way, calls):
    put_in_place(monkeypatch)
    step, widths = CachedSession.step, []

    def watched(self, tokens, *rest):
        widths.append(tokens.shape[1])
        return step(self, tokens, *rest)

    monkeypatch.setattr(CachedSession, "step", watched)
    figures = time_forwards(tiny, FORWARDS[way], (1, 4))
    assert widths == [1] * calls + [4] * calls
    for figure in figures.values():
        assert 0 < figure["low"] <= figure["seconds"] <= figure["high"] and figure["preparation_seconds"] > 0


def test_a_compiled_forward_gives_the_same_logits(tiny, monkeypatch):
    put_in_place(monkeypatch)
    with torch.no_grad():
        for window in (1, 16):
            logits = BareForward(tiny).of(window)()
            compiled = FORWARDS["compiled"](BareForward(tiny).of(window))
            assert all(torch.allclose(compiled(), logits, atol=1e-5) for _ in range(3))  # the later ones, its trace
