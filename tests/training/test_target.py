"""The training of the target: same result for any split of the work and after a resume."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from csd_pipeline.training.embedded.architecture import new_model, target_parameters
from csd_pipeline.training.embedded.batches import BatchMaker
from csd_pipeline.training.embedded.run import load_recipe, train_embedded
from csd_pipeline.training.embedded.sampling import sample_tokens
from csd_pipeline.training.embedded.train_target import (
    VALIDATION_STEP,
    TargetJob,
    TargetTrainer,
    image_logits,
    negative_log_likelihood,
    train_target,
)


@pytest.fixture(scope="module")
def model(recipe, codes):
    return new_model(recipe["model"], codes, seed=1)


@pytest.fixture
def job(tmp_path, dataset, codes, tokenizer, model, recipe):
    np.savez(tmp_path / "sprites.npz", sprites=dataset.sprites)
    (tmp_path / "start").mkdir()
    codes.save(tmp_path / "start" / "codes.safetensors")
    tokenizer.save_pretrained(tmp_path / "start")
    torch.save(model.state_dict(), tmp_path / "start" / "model.pt")
    numbers = {"steps": 4, "decay_steps": 2, "batch": 2, "save_every": 2, "validation_pictures": 16}
    return TargetJob(tmp_path, {**recipe, "texture_count": 1, "target": {**recipe["target"], **numbers}})


def test_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(job):
    train_target(TargetJob(job.work_dir, shortened(job.recipe, 2)))
    train_target(job)
    resumed = torch.load(job.checkpoint)["parameters"]
    job.checkpoint.unlink()
    trainer = TargetTrainer(0, job)
    for _ in range(4):
        trainer.train_step()
    assert all(torch.allclose(resumed[name], p, atol=1e-6) for name, p in trainer.parameters.items())
    log = [json.loads(line) for line in (job.folder / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 4 and log[-1]["held_out_nll"] > 0


def shortened(recipe, steps):
    return {**recipe, "target": {**recipe["target"], "steps": steps, "decay_steps": 0}}


def test_two_processes_end_with_the_weights_of_one(job, model, monkeypatch):
    """Real processes, with an odd batch: their shares are of unequal size and must be weighted. A relative folder."""
    monkeypatch.chdir(job.work_dir.parent)
    folder = Path(job.work_dir.name)
    recipe = {**job.recipe, "target": {**job.recipe["target"], "steps": 2, "batch": 3, "warmup_steps": 1}}
    weights, losses = [], []
    for processes in (1, 2):
        train_target(TargetJob(folder, recipe, processes))
        weights.append(torch.load(job.checkpoint)["parameters"])
        losses.append(json.loads((job.folder / "log.jsonl").read_text().splitlines()[-1])["held_out_nll"])
        job.checkpoint.unlink()
    for name, start in target_parameters(model).items():
        moved = (weights[0][name] - start).norm()
        # sums of gradients round differently; AdamW turns a rounding error of a tiny gradient into a visible one
        assert moved > 0 and (weights[1][name] - weights[0][name]).norm() < 0.01 * moved, name
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)
    assert not list(job.folder.glob("rendezvous*"))


@pytest.mark.parametrize("pictures", [5, 20])
def test_held_out_loss_is_the_mean_over_any_number_of_pictures(job, pictures):
    job.recipe["target"]["validation_pictures"] = pictures
    trainer = TargetTrainer(0, job)
    with torch.no_grad():
        singles = [
            negative_log_likelihood(
                trainer.model, trainer.batches.make(VALIDATION_STEP, range(i, i + 1), held_out=True)
            )
            for i in range(pictures)
        ]
    assert trainer.validate() == pytest.approx(torch.stack(singles).mean().item(), abs=1e-4)


def test_gradients_of_the_parts_add_up_to_the_gradient_of_the_batch(model, dataset, codes, tokenizer):
    batches = BatchMaker(dataset, codes, tokenizer, seed=0, caption_dropout=0.1)
    parameters = list(target_parameters(model).values())
    whole = torch.autograd.grad(negative_log_likelihood(model, batches.make(0, range(4))), parameters)
    parts = [negative_log_likelihood(model, batches.make(0, range(rank, 4, 2))) / 2 for rank in (0, 1)]
    summed = torch.autograd.grad(sum(parts), parameters)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, summed, strict=True))


def test_sampling_with_cache_and_padding_follows_the_trained_distribution(model, dataset, codes, tokenizer):
    batch = BatchMaker(dataset, codes, tokenizer, seed=0, caption_dropout=0.0).make(0, range(1))
    captions = [dataset.sample(0, 0, 0).caption, "a much longer caption, which forces padding of the first"]
    tokens = sample_tokens(model, tokenizer, captions, guidance=1, temperature=1e-4, seed=0)
    batch.pictures = tokens[:1]
    with torch.no_grad():
        likeliest = image_logits(model, batch).argmax(-1)
    assert (likeliest == tokens[:1]).float().mean() > 0.98


def test_unknown_recipe_numbers_and_stages_are_explained():
    with pytest.raises(ValueError, match="no number 'target.stepz'; it has: seed, .*target.steps"):
        load_recipe({"target.stepz": 3})
    with pytest.raises(ValueError, match="unknown stage 'tarjet'; stages are start, target"):
        train_embedded("work", "out", "judge", stages=["tarjet"])
