"""The picture codes: k-means tokens and their recycling."""

import numpy as np
import torch

from csd_pipeline.training.embedded.pixel_codes import PixelCodes, learn_codes, recycle_codes, to_patches


def test_encoding_a_decoded_picture_gives_its_tokens_back(codes):
    tokens = codes.encode(checkers())
    doubled = codes.decode(tokens).repeat_interleave(2, 2).repeat_interleave(2, 3)
    centroids_again = to_patches(((doubled + 1) * 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy())
    assert torch.allclose(centroids_again, codes.centroids[tokens].flatten(0, 1).clamp(-1, 1), atol=0.01)


def test_tokens_are_in_reading_order(codes):
    picture = np.zeros((1, 128, 128, 3), np.uint8)
    picture[:, :8, 8:16] = 255
    tokens = codes.encode(picture)[0]
    assert tokens.shape == (256,) and tokens[1] != tokens[0]
    assert (tokens[2:] == tokens[0]).all()


def test_codebook_is_unit_norm_and_survives_a_file(codes, tmp_path):
    assert torch.allclose(codes.codebook.norm(dim=1), torch.ones(512), atol=1e-5)
    codes.save(tmp_path / "codes.safetensors")
    assert torch.equal(PixelCodes.load(tmp_path / "codes.safetensors").centroids, codes.centroids)


def test_recycling_serves_new_patches_and_keeps_the_other_codes():
    generator = torch.Generator().manual_seed(0)
    old = torch.rand(4000, 48, generator=generator) * 0.2
    codes = learn_codes(old, 32, 4, generator)
    before = codes.centroids.clone()
    patches = torch.cat([old, torch.full((500, 48), -0.9)])
    changed = recycle_codes(codes, patches, 3, generator)
    kept = [i for i in range(32) if i not in changed.tolist()]
    assert torch.equal(codes.centroids[kept], before[kept])
    assert ((codes.centroids - patches[-1]).abs().amax(1) < 1e-4).any()
    assert torch.allclose(codes.codebook.norm(dim=1), torch.ones(32), atol=1e-5)


def checkers():
    y, x = np.mgrid[0:128, 0:128]
    return np.where(((y // 16 + x // 16) % 2 == 0)[..., None], 250, 20).repeat(3, -1).astype(np.uint8)[None]
