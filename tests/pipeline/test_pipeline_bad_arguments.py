"""Bad arguments are refused in one sentence before the model runs."""

import math

import pytest
import torch
from tiny_janus import PROMPT, draw, tiny_pipeline, tiny_tokenizer

from csd_pipeline import CSDAutoregressivePipeline, DriftBudget, EntropyRelaxation, Exact, JacobiDrafter, TVFilter

G = torch.Generator

BAD = {
    "no prompt": ({"prompt": None}, "prompt must be a text or a non-empty list of texts, got None"),
    "a number for a prompt": ({"prompt": 3}, "prompt must be a text or a non-empty list of texts, got 3"),
    "an empty list": ({"prompt": []}, r"prompt must be a text or a non-empty list of texts, got \[\]"),
    "a number in the list": ({"prompt": ["a", 3]}, r"list of texts, got \['a', 3\]"),
    "negative prompt of a wrong kind": ({"negative_prompt": 3}, "negative_prompt must be a text or a list of texts"),
    "too few negative prompts": (
        {"prompt": ["a", "b", "c"], "negative_prompt": ["d", "e"]},
        "got 2 negative prompts for 3 prompts; give one or as many",
    ),
    "width": (
        {"width": 1024},
        r"this model draws 16x16 pixels \(width x height\), got width=1024, height=16; leave them out",
    ),
    "height": (
        {"height": 0},
        r"this model draws 16x16 pixels \(width x height\), got width=16, height=0; leave them out",
    ),
    "no images": ({"num_images_per_prompt": 0}, "num_images_per_prompt must be an integer >= 1, got 0"),
    "half an image": ({"num_images_per_prompt": 1.5}, "num_images_per_prompt must be an integer >= 1, got 1.5"),
    "guidance": ({"guidance_scale": math.nan}, "guidance_scale must be a number >= 0, got nan"),
    "negative guidance": ({"guidance_scale": -1}, "guidance_scale must be a number >= 0, got -1"),
    "temperature": ({"temperature": math.nan}, "temperature must be a number >= 0, got nan"),
    "negative temperature": ({"temperature": -0.1}, "temperature must be a number >= 0, got -0.1"),
    "top_p": ({"top_p": 1.5}, "top_p must be between 0 and 1, got 1.5"),
    "top_k": ({"top_k": -1}, "top_k must be an integer >= 0, got -1"),
    "half a top_k": ({"top_k": 2.5}, "top_k must be an integer >= 0, got 2.5"),
    "preset": ({"preset": "balancd"}, r"unknown preset 'balancd' \(did you mean 'balanced'\?\); known: .*ar, "),
    "no preset": ({"preset": ""}, "unknown preset ''"),
    "output type": ({"output_type": "pill"}, r"unknown output_type 'pill' \(did you mean 'pil'\?\); known: pil, np"),
    "seed and generator": ({"seed": 1, "generator": G()}, "got both seed and generator; give one of them"),
    "seed -1": ({"seed": -1}, r"seed must be an integer in 0 .. 2\*\*64 - 1 .*, got -1"),
    "seed too large": ({"seed": 2**64}, "got 18446744073709551616"),
    "seed text": ({"seed": "3"}, "got '3'"),
    "seed True": ({"seed": True}, "got True"),
    "seed in a list": ({"seed": [2.0]}, "got 2.0"),
    "seeds": ({"seed": [1, 2]}, r"got 2 seeds for 1 images; give one per image \(prompts x num_images_per_prompt\)"),
    "generators": (
        {"prompt": ["a", "b"], "num_images_per_prompt": 2, "generator": [G(), G(), G()]},
        "got 3 generators for 4 images; give one per image",
    ),
    "generator": ({"generator": 42}, "generator must be a torch.Generator .*, got 42; numbers go to seed="),
    "generator in a list": ({"generator": [None]}, "generator must be a torch.Generator .*, got None"),
    "callback": ({"callback_on_step_end": 3}, "callback_on_step_end must be a function, got 3"),
    "callback tensor": (
        {"callback_on_step_end_tensor_inputs": ["latent"]},
        r"unknown callback tensor 'latent' \(did you mean 'latents'\?\); known: latents",
    ),
    "texts and ids": ({"prompt_ids": torch.ones(1, 3).long()}, "got texts and prompt_ids"),
    "negative text and ids": (
        {"prompt": None, "negative_prompt": "a", "prompt_ids": torch.ones(1, 3).long()},
        "got texts and prompt_ids; give prompt and negative_prompt, or the ids of both",
    ),
    "ids of floats": ({"prompt": None, "prompt_ids": torch.ones(1, 3)}, "prompt_ids must be an integer tensor"),
    "ids of one dimension": (
        {"prompt": None, "prompt_ids": torch.ones(3).long()},
        "prompt_ids must be an integer tensor",
    ),
    "a mask that does not fit": (
        {"prompt": None, "prompt_ids": torch.ones(1, 3).long(), "prompt_attention_mask": torch.ones(1, 4).long()},
        r"prompt_attention_mask has shape \[1, 4\], prompt_ids \[1, 3\]; pad both to one length",
    ),
    "a mask of right-padded ids": (
        {
            "prompt": None,
            "prompt_ids": torch.ones(1, 3).long(),
            "prompt_attention_mask": torch.tensor([[1, 1, 0]]),
        },
        "prompt_attention_mask must be 0 on padding, which belongs on the left",
    ),
    "negative ids beside a text": (
        {"negative_prompt_ids": torch.ones(1, 3).long()},
        "got negative_prompt_ids without prompt_ids; give both as ids, or both as texts",
    ),
    "ids of another tokenizer": (
        {"prompt": None, "prompt_ids": torch.full((1, 3), 99)},
        "the prompts have token id 99, the model knows 19 ids; load the tokenizer of this very model",
    ),
    "too many ids": (
        {"prompt": None, "prompt_ids": torch.ones(1, 81).long()},
        "the prompts have 81 tokens, beside the image the model has room for 80",
    ),
}


@pytest.fixture
def unrunnable(shared):
    """The shared pipeline, whose first forward would fail the test."""

    def run(*args):
        raise AssertionError("the model ran")

    handles = [module.register_forward_pre_hook(run) for module in shared.target.modules()]
    yield shared
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("case", BAD)
def test_arguments(unrunnable, case):
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message) as refusal:
        unrunnable(**{"prompt": PROMPT} | options)
    assert "\n" not in str(refusal.value)


def test_the_model_would_have_run(unrunnable):
    with pytest.raises(AssertionError, match="the model ran"):
        draw(unrunnable)


@pytest.mark.parametrize("keyword", ["image", "steps", "num_inference_steps", "model_seed"])
def test_unknown_keywords_are_an_error_not_a_warning(unrunnable, keyword):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'"):
        unrunnable(PROMPT, **{keyword: 1})


def test_refused_calls_leave_generators_alone(unrunnable):
    generator = G().manual_seed(3)
    before = generator.get_state()
    for options in ({"top_p": 2}, {"width": 8}, {"generator": [generator, 3], "prompt": ["a", "b"]}):
        with pytest.raises(ValueError):
            unrunnable(**{"prompt": PROMPT, "generator": generator} | options)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    "part, knobs, message",
    [
        (JacobiDrafter, {"window": 0}, "window must be an integer >= 1, got 0"),
        (JacobiDrafter, {"redraw": "freash"}, "did you mean 'fresh'"),
        (EntropyRelaxation, {"lam": -0.5}, "must be a number >= 0, got -0.5"),
        (TVFilter, {"delta": 1.5}, "delta must be between 0 and 1, got 1.5"),
        (TVFilter, {"delta": -0.1}, "delta must be between 0 and 1, got -0.1"),
        (DriftBudget, {"budget": -1}, "got -1"),
    ],
)
def test_knobs_of_the_parts(part, knobs, message):
    with pytest.raises(ValueError, match=message):
        part(**knobs)


@pytest.mark.parametrize(
    "name, part", [("drafter", TVFilter()), ("relaxation", TVFilter()), ("alignment_filter", Exact())]
)
def test_something_else_in_the_place_of_a_part(pipeline, name, part):
    setattr(pipeline, name, part)
    with pytest.raises(ValueError, match=f"{name} must be a .* or None, got"):
        draw(pipeline)


def test_unknown_presets_cannot_be_loaded(pipeline):
    with pytest.raises(ValueError, match=r"unknown preset 'fats' \(did you mean 'fast'\?\)"):
        pipeline.load_preset("fats")


def test_guidance_without_a_tokenizer_needs_negative_ids(shared):
    drawer = tiny_pipeline(target=shared.target, tokenizer=None)
    ids = torch.ones(1, 3).long()
    with pytest.raises(ValueError, match="guidance needs negative_prompt_ids or a tokenizer"):
        drawer(prompt_ids=ids, guidance_scale=2.0)
    assert drawer(prompt_ids=ids, guidance_scale=1.0, output_type="latent").images.shape == (1, 16)


def test_a_tokenizer_without_padding_is_refused(shared):
    broken = tiny_pipeline(target=shared.target, tokenizer=tiny_tokenizer(pad_token=None))
    for scale in (1.0, 2.0):
        with pytest.raises(ValueError, match="the tokenizer has no pad_token.*; set tokenizer.pad_token"):
            draw(broken, guidance_scale=scale)


def test_a_target_without_adapter_is_refused_at_once():
    with pytest.raises(ValueError, match="no target adapter for Linear; supported: .*JanusForConditionalGeneration"):
        CSDAutoregressivePipeline(torch.nn.Linear(1, 1), None, None, None, None)
