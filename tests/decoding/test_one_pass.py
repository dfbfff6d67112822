"""What a pass reads and writes stays where it is over a whole image."""

import torch
from helpers import OperatorLog
from helpers_janus import left_padded, prompt_batch, tiny_janus

from csd_pipeline.decoding import RunPass, Warp, decode, window_pass
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets import adapter_for

MODEL = tiny_janus("sdpa")


class Watched(RunPass):
    """Whole windows, each run by ``work``."""

    one_shape = True

    def __init__(self, work):
        self.work = work

    def __call__(self, run, length):
        return self.work(run, length)


def addresses(run) -> dict[str, int]:
    layers, noise = run.session.cache.layers, run.state.noise
    held = {f"keys {i}": layer.keys for i, layer in enumerate(layers)}
    held |= {f"values {i}": layer.values for i, layer in enumerate(layers)}
    held |= {"uniforms": noise._tables[0], "laws": run.draft_run.entry.ring.rows, "tokens": run.state.tokens}
    held |= {"last": run.state.last_tokens, "drafts": run.draft_run.drafts, "newest": run.draft_run.newest}
    return {name: tensor.data_ptr() for name, tensor in held.items()}


def test_storage_never_moves_and_never_grows():
    adapter, drafter = adapter_for(MODEL), JacobiDrafter(2, "coupled", "mean")
    session = adapter.open(prompt_batch(*left_padded([2, 3, 4, 5])), drafter.window)
    seen, shapes = [], set()

    def watched(run, length):
        report = window_pass(run, length)
        noise = run.state.noise  # remembers nothing of a pass: a traced one would have to hand it out
        assert (noise._last, noise._gumbel_of, noise._clamped, noise._of_pass) == (None, None, None, {})
        seen.append(addresses(run))
        shapes.add((run.draft_run.drafts.shape, run.draft_run.entry.ring.rows.shape, report.shape))
        return report

    parts = {"drafter": drafter, "relaxation": Exact(), "warp": Warp(guidance_scale=2.0, temperature=0.8)}
    result = decode(session, adapter, seeds=[4], run_pass=Watched(watched), **parts)
    assert result.complete and len(seen) > 5 and all(now == seen[0] for now in seen) and len(shapes) == 1


def test_uniforms_of_later_passes_take_the_place_of_earlier_ones():
    adapter, drafter = adapter_for(MODEL), JacobiDrafter(2, "fresh", "uniform")
    session = adapter.open(prompt_batch(*left_padded([2, 3, 4, 5])), drafter.window)
    tables = []

    def watched(run, length):
        run.state.noise.prepare([len(tables) * 16])  # a block of its own for every pass
        run.state.passes = torch.full((1,), len(tables) * 16)
        report = window_pass(run, length)
        tables.append((run.state.noise._tables[0].data_ptr(), run.state.noise._tables[0].clone()))
        return report

    decode(
        session,
        adapter,
        seeds=[4],
        run_pass=Watched(watched),
        drafter=drafter,
        relaxation=Exact(),
        warp=Warp(temperature=0.8),
    )
    assert len({address for address, _ in tables}) == 1
    assert all(not torch.equal(one, two) for (_, one), (_, two) in zip(tables, tables[1:], strict=False))


class OutsideForwards(RunPass):
    """As written; counts the operators of every pass beside the forward that compute or copy something."""

    def __init__(self):
        self.counts, self.standing = [], []

    def __call__(self, run, length):
        step, forwards = run.session.step, OperatorLog()

        def logged(*arguments):
            with forwards:
                return step(*arguments)

        self.standing.append(run.state.counts[0])
        run.session.step = logged
        with OperatorLog() as everything:
            report = super().__call__(run, length)
        del run.session.step
        self.counts.append(len(computing(everything.names)) - len(computing(forwards.names)))
        return report


def computing(names: list[str]) -> list[str]:
    views = {"view", "_unsafe_view", "slice", "select", "expand", "unsqueeze", "squeeze", "unbind", "alias", "detach"}
    views |= {"transpose", "permute", "t", "split"}
    return [name for name in names if name not in views]


def test_plain_and_exact_gumbel_decoding_are_at_most_forty_kernels_beside_the_forward_as_written():
    """Once a whole row is there; in the first row drafts may repeat the newest token, which takes seven more."""
    adapter, parts = adapter_for(MODEL), {"relaxation": Exact(), "warp": Warp(guidance_scale=2.0, temperature=0.8)}
    for drafter, most in ((JacobiDrafter(1), 20), (JacobiDrafter(3, "gumbel", "mean"), 40)):
        for _ in range(2):  # the first image makes what is kept for all
            passes = OutsideForwards()
            session = adapter.open(prompt_batch(*left_padded([3])), drafter.window)
            decode(session, adapter, seeds=[1], drafter=drafter, run_pass=passes, **parts)
        assert max(passes.counts) <= most + 7
        later = [count for count, stands in zip(passes.counts, passes.standing, strict=True) if stands >= 4]
        assert len(later) >= 3 and 10 < max(later) <= most
