"""The VQ decoder's start, and the prompt-accuracy classifier."""

import copy

import pytest
import torch

from csd_pipeline.evaluation.prompt_accuracy import PromptAccuracy, PromptClassifier
from csd_pipeline.training.embedded.architecture import new_model
from csd_pipeline.training.embedded.decoder_levels import copy_decoder
from csd_pipeline.training.embedded.train_decoder import DecoderTrainer
from csd_pipeline.training.embedded.train_metric import MetricTrainer, caption_forms, save_judge


def test_a_new_fine_level_starts_as_pixel_doubling(recipe, codes):
    coarse = copy.deepcopy(recipe["model"]) | {"decoder_levels": 3}
    source, model = new_model(coarse, codes, 1).model.vqmodel, new_model(recipe["model"], codes, 2).model.vqmodel
    copy_decoder(model, source)
    tokens = torch.randint(0, 512, (1, 256), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        small, large = source.decode(tokens), model.decode(tokens)
    assert large.shape == (1, 3, 128, 128)
    assert torch.nn.functional.avg_pool2d(large, 2).sub(small).abs().mean() < 0.3 * small.std()


def test_decoder_training_draws_what_decode_draws_and_lowers_the_error(recipe, codes, dataset, tmp_path):
    numbers = {"coarse_steps": 4, "full_steps": 0, "batch": 1, "warmup_steps": 1}
    recipe = {**recipe, "decoder": {**recipe["decoder"], **numbers}}
    trainer = DecoderTrainer(new_model(recipe["model"], codes, 1), dataset, codes, recipe, tmp_path)
    tokens = torch.randint(0, 512, (1, 256), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(trainer.draw(tokens, coarse=False), trainer.vq.decode(tokens), atol=1e-5)
        assert trainer.draw(tokens, coarse=True).shape == (1, 3, 64, 64)
    errors = []
    for _ in range(5):
        trainer.step = 1  # the same pictures again
        errors.append(trainer.train_step())
    assert errors[-1] < errors[0]


def test_judge_learns_saves_loads_and_scores(recipe, codes, dataset, catalogue, tmp_path):
    recipe = {**recipe, "metric": {**recipe["metric"], "steps": 2, "batch": 4, "width": 8}}
    trainer = MetricTrainer(dataset, codes, recipe)
    judge = trainer.train()
    save_judge(judge, tmp_path, 8, {})
    images = torch.rand(2, 3, 128, 128) * 2 - 1
    captions = ["a red apple on white", "plane, in the clouds"]
    first, second = judge.score(images, captions), PromptAccuracy.load(tmp_path).score(images, captions)
    assert first.subject_right.shape == (2,)
    assert torch.equal(first.subject_right, second.subject_right)
    assert 0 <= trainer.test(judge, 4, codes.decode)[0] <= 1


@pytest.fixture
def judge(catalogue):
    network = PromptClassifier(len(catalogue.subjects), len(catalogue.backgrounds), width=8)
    return PromptAccuracy(network, caption_forms(catalogue))


@pytest.mark.parametrize(
    ("caption", "subject", "background"),
    [
        ("a red apple on white", "red apple", "white"),
        ("Apple, white background", "red apple", "white"),
        ("a picture of a japanese flag in front of a brick wall", "flag of japan", "brick wall"),
        ("smiley with sunglasses in a meadow", "face with sunglasses", "grass"),
        ("panda", "panda", None),
    ],
)
def test_captions_are_understood(judge, catalogue, caption, subject, background):
    got_subject, got_background = judge.labels(caption)
    assert catalogue.subjects[got_subject].name == subject
    assert (background is None) == (got_background is None)
    assert background is None or catalogue.backgrounds[got_background].name == background


def test_every_canonical_caption_is_understood(judge, dataset, catalogue):
    for subject in range(len(catalogue.subjects)):
        for background in range(len(catalogue.backgrounds)):
            assert judge.labels(dataset.canonical_caption(subject, background)) == (subject, background)


def test_unknown_subject_names_the_known_ones(judge):
    with pytest.raises(ValueError, match="names no subject .* Known: red apple, lemon"):
        judge.labels("a spoon on white")
