"""`batch_size`: images in several batches are those of one batch, with the memory of one."""

import gc
import weakref

import pytest
import torch
from tiny_janus import PROMPT, TOKENS, draw

from csd_pipeline.decoding.cache import RowCache

PROMPTS = [PROMPT, "a blue dog"]


@pytest.mark.parametrize("batch_size", [1, 2, 4, 99])
def test_batches_change_nothing(shared, batch_size):
    together = shared(PROMPTS, num_images_per_prompt=3, seed=5, guidance_scale=2.0, output_type="pt")
    parts = shared(
        PROMPTS, num_images_per_prompt=3, seed=5, guidance_scale=2.0, output_type="pt", batch_size=batch_size
    )
    assert torch.allclose(together.images, parts.images, atol=1e-5)
    assert together.recipes == parts.recipes and parts.complete
    assert [trace.seed for trace in parts.traces] == [5, 6, 7, 8, 9, 10]
    assert [trace.nfe for trace in parts.traces] == [trace.nfe for trace in together.traces]


def test_sixteen_images_under_a_cap_are_sixteen_single_runs(shared):
    images = draw(shared, num_images_per_prompt=16, batch_size=5)
    singles = [draw(shared, seed=7 + i) for i in range(16)]
    assert torch.equal(images, torch.cat(singles))
    assert len(images.unique(dim=0)) > 8


def test_no_more_rows_than_asked_for_and_no_cache_left_behind(shared, monkeypatch):
    """The keys and values of a batch are gone before the next batch has its own, without a garbage collection."""
    caches, place, rows = [], RowCache.place, []

    def watched(cache, slots, limit):
        if not caches or caches[-1]() is not cache:
            assert all(other() is None for other in caches)
            caches.append(weakref.ref(cache))
        rows.append(len(slots))
        return place(cache, slots, limit)

    monkeypatch.setattr(RowCache, "place", watched)
    gc.disable()
    try:
        draw(shared, num_images_per_prompt=5, batch_size=2)
    finally:
        gc.enable()
    assert len(caches) == 3
    assert max(rows) == 2 * 2  # two images, and their guidance rows


def test_callbacks_count_on_and_see_one_batch_after_the_other(shared):
    seen = []

    def watch(pipe, step, timestep, tensors):
        seen.append((step, len(tensors["latents"]), timestep))
        assert pipe.num_timesteps == step + 1
        return {}

    draw(shared, num_images_per_prompt=3, batch_size=2, callback_on_step_end=watch)
    assert [step for step, _, _ in seen] == list(range(len(seen)))
    images = [count for _, count, _ in seen]
    assert images == sorted(images, reverse=True) and set(images) == {1, 2}
    assert [timestep for _, _, timestep in seen].count(TOKENS) == 2  # each batch ends once


def test_guidance_changed_for_one_batch_is_back_in_the_next(shared):
    def weaken(pipe, step, timestep, tensors):
        pipe._guidance_scale = 1.5
        return {}

    together = draw(shared, num_images_per_prompt=2, callback_on_step_end=weaken)
    apart = draw(shared, num_images_per_prompt=2, batch_size=1, callback_on_step_end=weaken)
    assert torch.equal(together, apart)
    assert not torch.equal(together, draw(shared, num_images_per_prompt=2))


def test_latents_a_callback_returns_replace_those_of_its_own_batch(shared):
    def erase_the_second_batch(pipe, step, timestep, tensors):
        return {"latents": torch.zeros_like(tensors["latents"])} if len(tensors["latents"]) == 1 else {}

    images = draw(shared, num_images_per_prompt=3, batch_size=2, callback_on_step_end=erase_the_second_batch)
    assert torch.equal(images[:2], draw(shared, num_images_per_prompt=2)) and not images[2].any()


def test_an_interruption_leaves_out_the_batches_that_were_not_begun(shared):
    def stop_at_the_end_of_the_first_batch(pipe, step, timestep, tensors):
        pipe._interrupt = timestep == TOKENS
        return {}

    options = {"num_images_per_prompt": 5, "batch_size": 2, "guidance_scale": 2.0, "seed": 7, "output_type": "latent"}
    output = shared(PROMPT, callback_on_step_end=stop_at_the_end_of_the_first_batch, **options)
    assert torch.equal(output.images, draw(shared, num_images_per_prompt=2))
    assert len(output.traces) == len(output.recipes) == 2 and not output.complete


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, True, "2"])
def test_a_wrong_batch_size_is_refused_before_the_model_runs(shared, batch_size):
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1"):
        draw(shared, batch_size=batch_size)
