"""Calling the pipeline: outputs, batches, seeds, prompts, callbacks, progress."""

import warnings

import numpy as np
import pytest
import torch
from diffusers.callbacks import PipelineCallback
from tiny_janus import CODES, PIXELS, PROMPT, TOKENS, draw, tiny_pipeline, tiny_tokenizer

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.prompts import _pad

PROMPTS = ["a red cube", "a dog on grass", "", "blue"]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_output_types_show_the_same_picture(shared, expected):
    call = {"prompt": PROMPT, "seed": 7, "guidance_scale": 2.0}
    outputs = {kind: shared(**call, output_type=kind).images for kind in ("pil", "np", "pt", "latent")}
    assert torch.equal(outputs["latent"], expected) and expected.shape == (1, TOKENS) and expected.dtype == torch.int64
    assert outputs["pt"].shape == (1, 3, PIXELS, PIXELS) and outputs["np"].shape == (1, PIXELS, PIXELS, 3)
    assert outputs["pt"].min() >= 0 and outputs["pt"].max() <= 1 and outputs["pt"].std() > 0
    assert np.allclose(outputs["pt"].permute(0, 2, 3, 1).numpy(), outputs["np"])
    assert outputs["pil"][0].size == (PIXELS, PIXELS) and outputs["pil"][0].mode == "RGB"
    assert np.abs(np.array(outputs["pil"][0]) - 255 * outputs["np"][0]).max() <= 0.501


def test_without_return_dict_a_tuple_comes_back(shared, expected):
    (images,) = shared(PROMPT, seed=7, guidance_scale=2.0, output_type="latent", return_dict=False)
    assert torch.equal(images, expected)


def test_the_default_call_makes_one_picture(shared):
    assert len(shared(PROMPT).images) == 1


@pytest.mark.parametrize("prompts, per_prompt", [(1, 2), (2, 1), (2, 2)])
def test_images_per_prompt(shared, prompts, per_prompt):
    output = shared(PROMPTS[:prompts], num_images_per_prompt=per_prompt, seed=3, output_type="latent")
    assert output.images.shape == (prompts * per_prompt, TOKENS)
    wanted = [prompt for prompt in PROMPTS[:prompts] for _ in range(per_prompt)]
    assert [recipe["prompt"] for recipe in output.recipes] == wanted
    assert [trace.seed for trace in output.traces] == [recipe["seed"] for recipe in output.recipes]


def test_every_image_of_a_batch_is_its_single_run(shared):
    batch = shared(PROMPTS, seed=5, guidance_scale=2.0, output_type="latent")
    for row, recipe, prompt in zip(batch.images, batch.recipes, PROMPTS, strict=True):
        assert torch.equal(draw(shared, prompt, seed=recipe["seed"])[0], row)


def test_two_shards_make_the_whole_job(shared):
    whole = draw(shared, PROMPTS, seed=5, num_images_per_prompt=2)
    shards = [draw(shared, PROMPTS[:2], seed=5, num_images_per_prompt=2)]
    shards.append(draw(shared, PROMPTS[2:], seed=5 + 4, num_images_per_prompt=2))
    assert torch.equal(torch.cat(shards), whole)


def test_a_list_of_generators_is_one_run_each(shared):
    batch = draw(shared, PROMPTS, generator=[generator(i) for i in range(4)])
    for i, prompt in enumerate(PROMPTS):
        assert torch.equal(draw(shared, prompt, generator=generator(i))[0], batch[i])
    again = draw(shared, PROMPT, generator=generator(0), num_images_per_prompt=3)
    assert torch.equal(again, draw(shared, PROMPT, generator=generator(0), num_images_per_prompt=3))
    assert len(again.unique(dim=0)) == 3


def test_negative_prompts_batch_as_single_runs(shared):
    negatives = ["dog", "very very long", "", "cube"]
    batch = draw(shared, PROMPTS, negative_prompt=negatives)
    for i, prompt in enumerate(PROMPTS):
        assert torch.equal(draw(shared, prompt, seed=7 + i, negative_prompt=negatives[i])[0], batch[i])
    assert torch.equal(draw(shared, PROMPTS, negative_prompt="dog")[0], batch[0])
    assert not torch.equal(draw(shared, PROMPTS), batch)


def test_seeds_of_the_whole_64_bit_range_differ(shared):
    seeds = [0, 5, 2**32, 5 + 2**32, 2**63, 2**64 - 1]
    tokens = draw(shared, PROMPT, num_images_per_prompt=len(seeds), seed=seeds)
    assert len(tokens.unique(dim=0)) == len(seeds)
    assert torch.equal(tokens, draw(shared, PROMPT, num_images_per_prompt=len(seeds), seed=seeds))
    wrapped = shared(PROMPT, num_images_per_prompt=2, seed=2**64 - 1, output_type="latent")
    assert [recipe["seed"] for recipe in wrapped.recipes] == [2**64 - 1, 0]


def test_numpy_seeds_are_seeds(shared, expected):
    assert torch.equal(draw(shared, seed=np.int64(7)), expected)


def test_the_recipe_draws_the_picture_again(shared):
    output = shared(PROMPTS, seed=11, temperature=0.9, top_k=20, top_p=0.95, output_type="latent")
    recipe = output.recipes[2]
    knobs = {name: recipe[name] for name in ("guidance_scale", "temperature", "top_k", "top_p", "seed")}
    assert torch.equal(draw(shared, recipe["prompt"], **knobs)[0], output.images[2])


def test_greedy_is_one_picture_for_all_seeds(shared):
    assert len(draw(shared, PROMPT, num_images_per_prompt=4, temperature=0).unique(dim=0)) == 1


def test_prompts_encode_without_a_target_and_draw_without_a_tokenizer(shared, expected):
    nothing = {"drafter": None, "relaxation": None, "alignment_filter": None}
    encoder = CSDAutoregressivePipeline(target=None, tokenizer=tiny_tokenizer(), **nothing)
    ids, mask, negative_ids, negative_mask = encoder.encode_prompt([PROMPT, "blue"], num_images_per_prompt=2)
    assert ids.shape == mask.shape == negative_ids.shape == negative_mask.shape and len(ids) == 4
    assert torch.equal(ids[0], ids[1]) and not torch.equal(ids[0], ids[2])
    assert mask[0].all() and not mask[2, 0] and mask[2, -1]  # padding on the left
    drawer = tiny_pipeline(target=shared.target, tokenizer=None)
    tokens = draw(drawer, None, prompt_ids=ids, prompt_attention_mask=mask, negative_prompt_ids=negative_ids)
    assert torch.equal(tokens[:1], expected)
    assert torch.equal(tokens, draw(shared, [PROMPT, "blue"], num_images_per_prompt=2))
    with pytest.raises(ValueError, match="no target model"):
        draw(encoder)


def test_the_empty_prompt_runs(shared):
    assert draw(shared, "").shape == (1, TOKENS)


def test_a_prompt_of_2000_words_is_cut_with_a_warning_that_counts(shared):
    with pytest.warns(
        UserWarning, match=r"the prompt has 2000 tokens, the model takes (\d+): the rest was cut off"
    ) as got:
        tokens = draw(shared, "very " * 2000)
    kept = int(str(got[0].message).split("takes ")[1].split(":")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(draw(shared, "very " * kept), tokens)
    assert shared.encode_prompt("very " * kept)[0].shape[1] == shared.tokenizer.model_max_length


@pytest.mark.parametrize("token", ["<begin_of_image>", "<|User|>", "<|Assistant|>", "<eos>", "<pad>", "<bos>"])
def test_control_tokens_in_a_prompt_are_no_control_tokens(shared, token):
    plain = shared.encode_prompt("a red cube")[0]
    quoted = shared.encode_prompt(f"a {token} red {token}cube")[0]
    assert torch.equal(plain, quoted)


def test_prompts_are_padded_on_the_left():
    ids, mask = _pad(tiny_tokenizer(), [[1, 9], [1, 9, 4, 5]])
    assert ids[0].tolist() == [0, 0, 1, 9] and mask[0].tolist() == [0, 0, 1, 1]


def test_the_callback_sees_every_pass(shared, expected):
    seen = []

    def record(pipe, step, timestep, tensors):
        assert set(tensors) == {"latents"} and tensors["latents"].shape == (1, TOKENS)
        seen.append((step, timestep, pipe.num_timesteps, pipe.guidance_scale, pipe.do_classifier_free_guidance))
        return tensors

    assert torch.equal(draw(shared, callback_on_step_end=record), expected)
    steps, tokens, passes, scales, guided = zip(*seen, strict=True)
    assert steps == tuple(range(len(seen))) and passes == tuple(range(1, len(seen) + 1))
    assert list(tokens) == sorted(set(tokens)) and tokens[-1] == TOKENS
    assert set(scales) == {2.0} and set(guided) == {True} and shared.num_timesteps == len(seen)


def test_only_latents_returned_after_the_last_pass_are_drawn(shared, expected):
    def zero_in_between(pipe, step, timestep, tensors):
        return {"latents": torch.zeros_like(tensors["latents"])} if timestep < TOKENS else {}

    def zero_at_the_end(pipe, step, timestep, tensors):
        return {"latents": torch.zeros_like(tensors["latents"])} if timestep == TOKENS else None

    assert torch.equal(draw(shared, callback_on_step_end=zero_in_between), expected)
    assert draw(shared, callback_on_step_end=zero_at_the_end).abs().sum() == 0
    copies = draw(
        shared, callback_on_step_end=lambda pipe, step, timestep, tensors: {"latents": tensors["latents"].clone()}
    )
    assert torch.equal(copies, expected)


@pytest.mark.parametrize(
    "latents", [torch.zeros(1, 3).long(), torch.zeros(1, TOKENS), torch.full((1, TOKENS), CODES), 3]
)
def test_latents_that_are_no_token_ids_are_refused(shared, latents):
    with pytest.raises(ValueError, match="the callback (must return latents as token ids|returned token ids outside)"):
        draw(shared, callback_on_step_end=lambda *args: {"latents": latents})


def test_guidance_changes_take_effect_at_once(shared):
    def more(pipe, step, timestep, tensors):
        pipe._guidance_scale += 1.0
        return tensors

    changed = draw(shared, PROMPT, callback_on_step_end=more, guidance_scale=2.0)
    assert shared.guidance_scale == 2.0 + shared.num_timesteps
    assert not torch.equal(changed, draw(shared))


def test_interrupting_stops_within_one_pass(shared, expected):
    def stop(pipe, step, timestep, tensors):
        pipe._interrupt = step == 2
        return tensors

    output = shared(PROMPT, seed=7, guidance_scale=2.0, output_type="latent", callback_on_step_end=stop)
    assert not output.complete and shared.num_timesteps == 3 and shared.interrupt
    done = output.traces[0].tokens
    assert 3 <= done < TOKENS and torch.equal(output.images[0, :done], expected[0, :done])
    assert shared(PROMPT, seed=7).complete  # the next call starts anew


def test_an_exception_of_the_callback_leaves_as_it_is(shared, expected):
    class Cancelled(BaseException):
        pass

    def cancel(*args):
        raise Cancelled

    with pytest.raises(Cancelled):
        draw(shared, callback_on_step_end=cancel)
    assert torch.equal(draw(shared), expected)


def test_callback_objects_of_diffusers_name_their_own_tensors(shared, expected):
    class Recorder(PipelineCallback):
        tensor_inputs = ["latents"]
        calls = 0

        def callback_fn(self, pipeline, step_index, timestep, callback_kwargs):
            self.calls += 1
            return callback_kwargs

    recorder = Recorder(cutoff_step_ratio=None, cutoff_step_index=1)
    tokens = draw(shared, callback_on_step_end=recorder, callback_on_step_end_tensor_inputs=["something else"])
    assert torch.equal(tokens, expected) and recorder.calls == shared.num_timesteps


def test_the_progress_bar_counts_tokens_and_obeys_its_configuration(pipeline, capsys):
    pipeline.set_progress_bar_config(disable=None, desc="drawing", file=None)
    pipeline._progress_bar_config["disable"] = False
    draw(pipeline, PROMPTS[:2])
    shown = capsys.readouterr().err
    assert "drawing" in shown and f"{2 * TOKENS}/{2 * TOKENS}" in shown and "tokens/step" in shown
    pipeline.set_progress_bar_config(disable=True)
    draw(pipeline)
    assert capsys.readouterr().err == ""


def test_maps_are_recorded_on_demand(shared):
    maps = shared(PROMPT, seed=7, record_maps=True).traces[0].maps
    assert set(maps) == {"entropy", "acceptance", "passes", "drift"} and maps["entropy"].shape == (4, 4)
    assert set(shared(PROMPT, seed=7).traces[0].maps) == set()
