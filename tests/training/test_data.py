"""Captions, the held-out split and the batches of the target."""

import numpy as np
import pytest
import torch

from csd_pipeline.training.embedded.batches import BatchMaker, pad_left
from csd_pipeline.training.embedded.captions import canonical_caption, random_caption, with_article
from csd_pipeline.training.embedded.text_tokenizer import BOI_ID, BOS_ID, PAD_ID, prompt_ids
from csd_pipeline.training.embedded.textures import SIZE, TEXTURES, cut_window, draw_texture


@pytest.fixture
def batches(dataset, codes, tokenizer):
    return BatchMaker(dataset, codes, tokenizer, seed=3, caption_dropout=0.3)


def test_training_batches_never_show_a_held_out_pair(dataset, catalogue):
    samples = [dataset.sample(1, step, index) for step in range(40) for index in range(10)]
    assert not any(catalogue.is_held_out(s.subject, s.background) for s in samples)


def test_held_out_share_is_one_pair_in_twenty(catalogue):
    everywhere = list(range(len(catalogue.backgrounds)))
    held_out, trained = (len(catalogue.pairs(side, everywhere)) for side in (True, False))
    assert held_out + trained == len(catalogue.subjects) * len(catalogue.backgrounds)
    assert 0.04 < held_out / (held_out + trained) < 0.06


def test_first_backgrounds_keep_their_held_out_pairs(catalogue):
    by_id = {b.id: position for position, b in enumerate(catalogue.backgrounds)}
    assert catalogue.is_held_out(9, by_id[0])
    assert not catalogue.is_held_out(0, by_id[0])


def test_rows_do_not_depend_on_the_number_of_processes_nor_on_earlier_steps(batches):
    whole = batches.make(7, range(6))
    parts = [batches.make(7, range(rank, 6, 2)) for rank in (0, 1)]
    assert torch.equal(whole.pictures[0::2], parts[0].pictures)
    assert torch.equal(whole.pictures[1::2], parts[1].pictures)
    assert prompts_of(whole)[1::2] == prompts_of(parts[1])
    assert prompts_of(batches.make(7, range(6))) == prompts_of(whole)
    assert not torch.equal(batches.make(8, range(6)).pictures, whole.pictures)


def prompts_of(batch):
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch.prompts, batch.mask, strict=True)]


def test_dropped_captions_keep_only_first_and_last_token(batches):
    prompts = [p for step in range(12) for p in prompts_of(batches.make(step, range(6)))]
    dropped = [p for p in prompts if PAD_ID in p]
    assert 0.1 < len(dropped) / len(prompts) < 0.5
    assert all(p[0] == BOS_ID and p[-1] == BOI_ID and set(p[1:-1]) == {PAD_ID} for p in dropped)


def test_left_padding_masks_only_the_padding():
    ids, mask = pad_left([[1, 0, 3], [1, 8, 9, 3]])
    assert ids.tolist() == [[0, 1, 0, 3], [1, 8, 9, 3]]
    assert mask.tolist() == [[0, 1, 1, 1], [1, 1, 1, 1]]


def test_captions_name_subject_and_mostly_the_background(catalogue):
    rng = np.random.default_rng(0)
    captions = [random_caption(catalogue, 10, 0, rng) for _ in range(400)]
    assert canonical_caption(catalogue, 10, 0) == "panda on white" in captions
    assert all("panda" in caption for caption in captions)
    assert 0.75 < np.mean(["white" in caption for caption in captions]) < 0.95
    assert {"panda on a white background", "a panda, white background"} & set(captions)


def test_article_follows_the_first_letter():
    assert with_article("octopus") == "an octopus"
    assert with_article("fox") == "a fox"


def test_any_text_can_be_a_prompt(tokenizer):
    ids = prompt_ids(tokenizer, "Zürich ☕")
    assert ids[0] == BOS_ID and ids[-1] == BOI_ID and len(ids) > 5
    assert tokenizer.decode(prompt_ids(tokenizer, "a Fox")[1:-1]).strip() == "a fox"


@pytest.mark.parametrize("name", sorted(TEXTURES))
def test_textures_draw_and_cut(name):
    texture = draw_texture(name, np.random.default_rng(0))
    assert texture.shape == (SIZE, SIZE, 3) and texture.std() > 5
    assert cut_window(name, texture, 128, np.random.default_rng(0)).shape == (128, 128, 3)


def test_unknown_texture_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown texture 'lava'; known: brick_wall"):
        draw_texture("lava", np.random.default_rng(0))
