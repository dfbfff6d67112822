"""The weights in the package: they load, fit together, and the judge recognises the shipped samples."""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from csd_pipeline.evaluation.prompt_accuracy import PromptAccuracy
from csd_pipeline.training.embedded.export import load_exported
from csd_pipeline.training.embedded.model_card import sample_pairs
from csd_pipeline.training.embedded.text_tokenizer import BOI_ID

FOLDER = Path(str(resources.files("csd_pipeline"))) / "models" / "embedded"


@pytest.fixture(scope="module")
def shipped():
    return load_exported(FOLDER)


def test_codebook_is_unit_norm_and_the_same_in_model_and_codes(shipped):
    model, _, codes = shipped
    codebook = model.model.vqmodel.quantize.embedding.weight
    assert torch.allclose(codebook.norm(dim=1), torch.ones(len(codebook)), atol=2e-3)
    assert torch.allclose(codebook, codes.codebook, atol=2e-3)


def test_decoder_draws_128_px_pictures_of_the_codes(shipped):
    model, _, codes = shipped
    white = codes.encode(np.full((1, 128, 128, 3), 255, np.uint8))
    with torch.no_grad():
        drawn = model.model.vqmodel.decode(white)
    assert drawn.shape == (1, 3, 128, 128) and drawn.mean() > 0.9


def test_tokenizer_has_janus_special_tokens(shipped):
    _, tokenizer, _ = shipped
    assert tokenizer.boi_token_id == BOI_ID and tokenizer.padding_side == "left"
    assert tokenizer("a red apple on white").input_ids[0] == tokenizer.bos_token_id


def test_folder_is_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 30e6


def test_judge_recognises_the_shipped_samples(dataset, catalogue):
    sheet = np.asarray(Image.open(FOLDER / "samples.png")).astype(np.float32) / 127.5 - 1
    pictures = torch.from_numpy(sheet).unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
    images = pictures.permute(0, 2, 4, 1, 3).flatten(0, 1)
    captions = [dataset.canonical_caption(*pair) for pair in sample_pairs(catalogue)]
    score = PromptAccuracy.load().score(images, captions)
    assert score.background_right.float().mean() > 0.9
    assert score.subject_right.float().mean() > 0.8


def test_stock_generate_draws_the_prompt(shipped):
    model, tokenizer, _ = shipped
    model.generation_config.generation_kwargs = {"boi_token_id": BOI_ID}
    prompt = torch.tensor([[*tokenizer("a red apple on white").input_ids, BOI_ID]])
    torch.manual_seed(0)
    tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_mode="image", do_sample=True)
    picture = model.decode_image_tokens(tokens).permute(0, 3, 1, 2)
    score = PromptAccuracy.load().score(picture, ["a red apple on white"])
    assert picture.shape == (1, 3, 128, 128)
    assert score.subject_right.all() and score.background_right.all()
