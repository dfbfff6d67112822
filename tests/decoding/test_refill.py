"""Images that take the place of finished ones are those of their single runs."""

import pytest
import torch
from helpers_janus import left_padded, prompt_batch, tiny_janus
from helpers_tape import captured

from csd_pipeline.alignment import DriftBudget
from csd_pipeline.decoding import RunPass, Warp, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import EntropyRelaxation, Exact
from csd_pipeline.targets import PromptBatch, adapter_for

MODEL = tiny_janus("sdpa")
ADAPTER = adapter_for(MODEL)
WARP = Warp(guidance_scale=2.0, temperature=0.8)
PROMPTS = [[2, 3, 4], [5, 6], [7, 8, 9, 10], [2], [11, 12], [3, 3, 3], [4, 5, 6, 7]]
BATCH = prompt_batch(*left_padded(*PROMPTS))
SEEDS = [3, 2**64 - 1, 0, 7, 8, 9, 10]
METHODS = {
    "plain": {"drafter": JacobiDrafter(1, "gumbel"), "relaxation": Exact()},
    "gumbel": {"drafter": JacobiDrafter(5, "gumbel"), "relaxation": Exact()},
    "coupled": {"drafter": JacobiDrafter(5, "coupled", "mean"), "relaxation": Exact()},
    "tree": {"drafter": JacobiDrafter(5, "fresh", tree_depth=2, tree_width=2), "relaxation": Exact()},
    "guided": {"drafter": JacobiDrafter(5, "coupled", "above-copy", guide="growth"), "relaxation": Exact()},
    "relaxed": {
        "drafter": JacobiDrafter(5, "fresh", "left"),
        "relaxation": EntropyRelaxation(0.5, relax_fresh=True),
        "alignment_filter": DriftBudget(0.2),
    },
}


def part(first: int, count: int) -> PromptBatch:
    rows = (BATCH.ids, BATCH.mask, BATCH.unconditional_ids, BATCH.unconditional_mask)
    return PromptBatch(*(row[first : first + count] for row in rows))


def room(drafter) -> int:
    return drafter.window + drafter.extra_tokens


def refilled(slots: int, method: dict, **options):
    def waiting(first, count):
        opened.append((first, count))
        return ADAPTER.open(part(first, count), room(method["drafter"]))

    opened: list[tuple[int, int]] = []
    session = waiting(0, slots)
    return decode(session, ADAPTER, seeds=SEEDS, warp=WARP, maps=True, waiting=waiting, **method, **options), opened


def single(image: int, method: dict):
    session = ADAPTER.open(part(image, 1), room(method["drafter"]))
    return decode(session, ADAPTER, seeds=[SEEDS[image]], warp=WARP, maps=True, **method)


@pytest.mark.parametrize(
    ("run_pass", "unread"), [(RunPass, 0), (RunPass, 2), (captured, 0), (captured, 2)], ids=lambda v: str(v)[:10]
)
@pytest.mark.parametrize("name", METHODS)
def test_every_image_is_that_of_its_single_run(name, run_pass, unread):
    together, opened = refilled(3, METHODS[name], run_pass=run_pass(), unread=unread)
    assert together.complete and [first for first, _ in opened] == sorted({first for first, _ in opened})
    assert sum(count for _, count in opened) == len(PROMPTS) and opened[0] == (0, 3)
    for image, trace in enumerate(together.traces):
        alone = single(image, METHODS[name])
        one = alone.traces[0]
        assert torch.equal(together.tokens[image], alone.tokens[0]) and trace.seed == SEEDS[image]
        assert trace.accepted == one.accepted and trace.nfe == one.nfe
        assert trace.drift == pytest.approx(one.drift, abs=1e-5)
        assert all(torch.allclose(trace.maps[n], one.maps[n], atol=1e-4, equal_nan=True) for n in one.maps)


def test_an_image_does_not_wait_for_its_batch():
    """Forwards of the whole: no more than those of batches one after the other, and here fewer."""
    forwards = []
    refilled(3, METHODS["gumbel"], on_pass=lambda progress: forwards.append(progress.passes))
    nfe = [single(image, METHODS["gumbel"]).traces[0].nfe for image in range(len(PROMPTS))]
    in_batches = sum(max(nfe[start : start + 3]) + 1 for start in range(0, len(nfe), 3))
    prefills = 1 + len(PROMPTS) - 3
    assert max(nfe) > min(nfe) and forwards[-1] - prefills < in_batches - 3


def test_an_interruption_returns_the_images_that_were_begun():
    begun, _ = refilled(2, METHODS["gumbel"], on_pass=lambda progress: sum(c == 16 for c in progress.counts) < 2)
    assert not begun.complete and len(begun.traces) == len(begun.tokens) < len(PROMPTS)
    finished = [image for image, trace in enumerate(begun.traces) if trace.tokens == ADAPTER.grid.tokens]
    assert len(finished) >= 2
    for image in finished:
        assert torch.equal(begun.tokens[image], single(image, METHODS["gumbel"]).tokens[0])


def test_callbacks_see_all_images():
    seen = []

    def watch(progress):
        seen.append((len(progress.counts), progress.tokens.shape[0], tuple(progress.drift.shape)))
        committed = [(row != 0).any().item() for row in progress.tokens]
        assert not any(c for c, count in zip(committed, progress.counts, strict=True) if count == 0)

    refilled(3, METHODS["relaxed"], on_pass=watch)
    assert set(seen) == {(len(PROMPTS), len(PROMPTS), (len(PROMPTS),))}


def test_seeds_for_images_nobody_opens_are_refused():
    with pytest.raises(ValueError, match="got 7 seeds for a session of 3 images"):
        decode(ADAPTER.open(part(0, 3), 5), ADAPTER, seeds=SEEDS, warp=WARP, **METHODS["gumbel"])
