import torch
from helpers import open_toy

from csd_pipeline.decoding import RunPass, Warp, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.evaluation.clocks import Clock, CompiledForwards, ForwardWatch
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget


def test_the_watch_counts_forwards_and_drafts_at_the_call():
    adapter = ToyAdapter(ToyTarget(rows=3, columns=3, vocabulary=2))
    calls = []
    session = open_toy(adapter, [0], guided=False, window=4)
    inner = session._step
    session._step = lambda tokens, *rest: calls.append(tokens.shape[1]) or inner(tokens, *rest)
    watch = ForwardWatch(session, "cpu")
    result = decode(session, adapter, seeds=[3], warp=Warp(), drafter=JacobiDrafter(4), relaxation=Exact())
    trace = result.traces[0]
    assert watch.nfe == len(calls) == trace.nfe < 8
    assert watch.drafted == [length - 1 for length in calls]
    committed, lengths = 1, []
    for accepted in trace.accepted:
        lengths.append(min(3, 9 - committed - 1))
        committed += accepted + 1
    assert watch.drafted == lengths and committed == 9


def test_the_prefill_is_timed_apart(monkeypatch):
    seconds = iter(range(100))
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.perf_counter", lambda: 10 * next(seconds))
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.process_time", lambda: 3 * next(seconds))
    session = open_toy(ToyAdapter(ToyTarget()), [0], guided=False, window=2)
    watch = ForwardWatch(session, "cpu")
    session.prefill()
    for committed in (1, 2):
        session.step(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([committed]), committed)
    # each mark reads both clocks, so two ticks pass between the two ends of a forward
    assert (watch.prefill_wall, watch.wall, watch.cpu) == (20, 40, 12)


def test_a_clock_adds_up_its_blocks(monkeypatch):
    wall, cpu = iter([1.0, 4.0, 10.0, 11.0]), iter([0.0, 2.0, 5.0, 5.5])
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.perf_counter", lambda: next(wall))
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.process_time", lambda: next(cpu))
    clock = Clock()
    for _ in range(2):
        with clock:
            pass
    assert (clock.wall, clock.cpu) == (4.0, 2.5)


def test_what_is_done_for_a_forward_beside_a_pass_is_timed_apart(monkeypatch):
    """Two seconds of preparing, five of the forward, in every pass; neither is the loop's."""
    now = [0.0]
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("csd_pipeline.evaluation.clocks.time.process_time", lambda: now[0])

    class Slow(CompiledForwards):
        def _run(self, run, length, clock):
            now[0] += 2
            with clock:
                now[0] += 5

    way, forwards, aside = Slow("cpu", {}).watch(RunPass())
    adapter = ToyAdapter(ToyTarget(rows=3, columns=3, vocabulary=2))
    parts = {"warp": Warp(), "drafter": JacobiDrafter(4), "relaxation": Exact()}
    with Clock() as both:
        result = decode(open_toy(adapter, [0], False, 4), adapter, seeds=[3], run_pass=way, **parts)
    passes = result.traces[0].nfe
    assert (forwards.wall, aside.wall, both.wall) == (5 * passes, 7 * passes, 7 * passes) and passes > 1


def test_a_forward_beside_a_pass_changes_nothing_it_commits():
    adapter = ToyAdapter(ToyTarget(rows=3, columns=3, vocabulary=2))
    parts = {"warp": Warp(), "drafter": JacobiDrafter(4), "relaxation": Exact()}
    plain = decode(open_toy(adapter, [0], False, 4), adapter, seeds=[3], **parts)
    way, forwards, aside = CompiledForwards("cpu", {"backend": "eager"}).watch(RunPass())
    beside = decode(open_toy(adapter, [0], False, 4), adapter, seeds=[3], run_pass=way, **parts)
    assert torch.equal(plain.tokens, beside.tokens) and 0 < forwards.wall < aside.wall
