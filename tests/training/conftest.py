"""A synthetic data set: coloured discs for subjects, so that no package has to be fetched."""

import numpy as np
import pytest
import torch

from csd_pipeline.training.embedded.catalogue import load_catalogue
from csd_pipeline.training.embedded.dataset import StickerDataset
from csd_pipeline.training.embedded.pixel_codes import learn_codes, to_patches
from csd_pipeline.training.embedded.run import load_recipe
from csd_pipeline.training.embedded.sources import SPRITE_SIZE
from csd_pipeline.training.embedded.text_tokenizer import learn_tokenizer
from csd_pipeline.training.embedded.textures import SIZE


@pytest.fixture(scope="session")
def catalogue():
    return load_catalogue()


@pytest.fixture(scope="session")
def recipe():
    return load_recipe({"model.layers": 1, "model.hidden": 96, "model.heads": 3, "model.mlp": 64})


@pytest.fixture(scope="session")
def dataset(catalogue):
    y, x = np.mgrid[0:SPRITE_SIZE, 0:SPRITE_SIZE] - SPRITE_SIZE // 2
    disc = (np.hypot(y, x) < 40)[..., None]
    colours = np.random.default_rng(0).integers(0, 256, (len(catalogue.subjects), 1, 1, 3))
    sprites = np.concatenate([colours * disc, np.broadcast_to(255 * disc, (len(colours), *disc.shape))], -1)
    noise = np.random.default_rng(1).integers(0, 256, (2, SIZE, SIZE, 3), dtype=np.uint8)
    textures = {b.texture: noise for b in catalogue.backgrounds if b.texture}
    return StickerDataset(catalogue, sprites.astype(np.uint8), textures)


@pytest.fixture(scope="session")
def codes(dataset):
    pictures = np.stack([dataset.sample(0, 0, index).picture for index in range(24)])
    return learn_codes(to_patches(pictures), 512, 2, torch.Generator().manual_seed(0))


@pytest.fixture(scope="session")
def tokenizer(catalogue):
    return learn_tokenizer(catalogue, 512)
