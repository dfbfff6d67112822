import pytest
import torch
from gpu_stand_ins import put_in_place

from csd_pipeline.evaluation.gpu_suite import syncs
from csd_pipeline.evaluation.gpu_suite.image import draw
from csd_pipeline.evaluation.gpu_suite.loop_table import LOOPS
from csd_pipeline.evaluation.gpu_suite.methods import methods

WAIT = "called a synchronizing CUDA operation"


class Reading:
    """A pass during which something happens."""

    def __init__(self, happens):
        self.run_pass, self.happens = LOOPS["eager"].make(), happens

    def __getattr__(self, name):
        return getattr(self.run_pass, name)

    def __call__(self, run, length):
        self.happens()
        return self.run_pass(run, length)


def test_the_watch_is_on_during_passes_only(tiny, monkeypatch):
    modes = put_in_place(monkeypatch)
    seen, prefills = [], []
    hook = tiny.adapter.language_model.register_forward_hook(lambda *_: prefills.append(list(modes)))
    outcome = syncs.find_syncs(tiny, methods()["ar"], Reading(lambda: seen.append(list(modes))))
    hook.remove()
    assert outcome == syncs.CLEAN and prefills[0] == []
    assert [modes[-1] if modes else None for modes in seen] == [None] * 4 + ["error"] * 16
    assert modes == ["error", "default"] * 16  # between passes the loop may read


@pytest.mark.parametrize(("method", "name"), [("ar", "eager"), ("csd", "captured"), ("gumbel", "compiled")])
def test_every_loop_is_watched_for_as_many_passes(tiny, monkeypatch, method, name):
    """Images of the window methods end before that."""
    modes = put_in_place(monkeypatch)
    assert syncs.find_syncs(tiny, methods()[method], LOOPS[name].make()) == syncs.CLEAN
    assert modes == ["error", "default"] * 16


def test_what_waits_is_named_and_the_watch_is_over(tiny, monkeypatch):
    modes = put_in_place(monkeypatch)

    def wait():
        if modes and modes[-1] == "error":
            raise RuntimeError(f"{WAIT}\nand more")

    assert syncs.find_syncs(tiny, methods()["csd"], Reading(wait)) == WAIT
    assert modes == ["error", "default"]


def test_other_errors_are_no_waits(tiny, monkeypatch):
    put_in_place(monkeypatch)

    def fail():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        syncs.find_syncs(tiny, methods()["ar"], Reading(fail))


def test_a_watched_pass_draws_the_same(tiny, monkeypatch):
    put_in_place(monkeypatch)
    watched = syncs.NoWaiting(LOOPS["captured"].make())
    for _ in range(2):
        assert torch.equal(draw(tiny, methods()["csd"], watched).tokens, draw(tiny, methods()["csd"]).tokens)
