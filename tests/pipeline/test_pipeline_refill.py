"""`refill`: the next image begins as soon as one is finished; the images are those of single runs."""

import pytest
import torch
from helpers_tape import captured
from tiny_janus import PROMPT, draw

PROMPTS = [PROMPT, "a blue dog", "a small red house on a hill"]


@pytest.mark.parametrize("batch_size", [1, 2, 4, 99])
def test_refilled_batches_change_nothing(shared, batch_size):
    options = {"num_images_per_prompt": 2, "seed": 5, "guidance_scale": 2.0, "output_type": "latent"}
    together = shared(PROMPTS, **options)
    refilled = shared(PROMPTS, batch_size=batch_size, refill=True, **options)
    assert torch.equal(together.images, refilled.images) and refilled.complete
    assert together.recipes == refilled.recipes
    for one, two in zip(together.traces, refilled.traces, strict=True):
        assert (one.seed, one.nfe, one.accepted) == (two.seed, two.nfe, two.accepted)


def test_callbacks_see_all_images_of_the_call(shared):
    seen = []

    def watch(pipe, step, timestep, tensors):
        seen.append((step, len(tensors["latents"]), timestep))
        assert pipe.num_timesteps == step + 1
        return {}

    draw(shared, num_images_per_prompt=5, batch_size=2, refill=True, callback_on_step_end=watch)
    assert [step for step, _, _ in seen] == list(range(len(seen)))
    assert {count for _, count, _ in seen} == {5} and seen[0][2] == 0


def test_latents_a_callback_returns_replace_those_of_the_call(shared):
    def erase(pipe, step, timestep, tensors):
        return {"latents": torch.zeros_like(tensors["latents"])}

    assert not draw(shared, num_images_per_prompt=3, batch_size=2, refill=True, callback_on_step_end=erase).any()


def test_an_interruption_leaves_out_the_images_that_were_not_begun(shared):
    def stop(pipe, step, timestep, tensors):
        pipe._interrupt = step == 3
        return {}

    options = {"num_images_per_prompt": 5, "batch_size": 2, "refill": True, "seed": 7, "output_type": "latent"}
    output = shared(PROMPT, callback_on_step_end=stop, guidance_scale=2.0, **options)
    assert 2 <= len(output.traces) == len(output.recipes) == len(output.images) < 5 and not output.complete


@pytest.mark.parametrize("name", ["refill", "record_maps"])
def test_a_switch_is_true_or_false(shared, name):
    with pytest.raises(ValueError, match=f"^{name} must be true or false, got 'no'$"):
        draw(shared, batch_size=2, **{name: "no"})


def test_refill_needs_a_batch_size(shared):
    with pytest.raises(ValueError, match="refill needs batch_size"):
        draw(shared, refill=True)


def test_captured_passes_serve_one_call_after_the_other(shared):
    plain = [draw(shared, num_images_per_prompt=3, seed=seed) for seed in (7, 70)]
    refilled = draw(shared, num_images_per_prompt=5, seed=700)
    shared._run_pass = captured()
    try:
        for seed, expected in zip((7, 70), plain, strict=True):
            assert torch.equal(draw(shared, num_images_per_prompt=3, seed=seed), expected)
        again = draw(shared, num_images_per_prompt=5, seed=700, batch_size=3, refill=True)
        assert torch.equal(again, refilled)
    finally:
        shared.disable_cuda_graphs()


def test_cuda_graphs_are_refused_elsewhere(shared):
    with pytest.raises(ValueError, match="CUDA graphs need the model on a CUDA device, it is on cpu"):
        shared.enable_cuda_graphs()
