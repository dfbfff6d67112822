"""The picture tokens: k-means codes of 4x4 pixel patches of the picture averaged 2x2.

`centroids` is (512, 48), RGB of a 4x4 patch in -1..1; `codebook` is (512, 8) of unit norm, the vectors Janus' VQ
decoder sees. A picture of 128x128 px becomes 16x16 tokens in reading order.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

PATCH = 4
GRID = 16


@dataclass
class PixelCodes:
    centroids: torch.Tensor
    codebook: torch.Tensor

    def encode(self, pictures: np.ndarray) -> torch.Tensor:
        """(n, 128, 128, 3) uint8 -> (n, 256) int64."""
        patches = to_patches(pictures)
        return nearest(patches, self.centroids).view(len(pictures), GRID * GRID)

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        """(n, 256) -> (n, 3, 64, 64) float in -1..1: the bare centroids, without the VQ decoder."""
        patches = self.centroids[tokens].view(-1, GRID, GRID, PATCH, PATCH, 3)
        return patches.permute(0, 5, 1, 3, 2, 4).reshape(-1, 3, GRID * PATCH, GRID * PATCH)

    def save(self, path: Path) -> None:
        save_file({"centroids": self.centroids.contiguous(), "codebook": self.codebook.contiguous()}, path)

    @classmethod
    def load(cls, path: Path) -> "PixelCodes":
        tensors = load_file(path)
        return cls(tensors["centroids"].float(), tensors["codebook"].float())


def to_unit(pictures: np.ndarray) -> torch.Tensor:
    """(n, h, w, 3) uint8 -> (n, 3, h, w) float in -1..1."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1


def to_patches(pictures: np.ndarray) -> torch.Tensor:
    """(n, 128, 128, 3) uint8 -> (n * 256, 48): averaged 2x2, cut in 4x4 patches."""
    small = F.avg_pool2d(to_unit(pictures), 2)
    patches = small.view(-1, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 3, 5, 1)
    return patches.reshape(-1, PATCH * PATCH * 3)


def nearest(patches: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """(n, 48) and (k, 48) -> (n,) index of the nearest centroid."""
    half_norms = centroids.square().sum(1) / 2
    return torch.cat([(part @ centroids.T - half_norms).argmax(1) for part in patches.split(16384)])


def learn_codes(patches: torch.Tensor, count: int, iterations: int, generator: torch.Generator) -> PixelCodes:
    """k-means on patches (n, 48); detailed patches are drawn more often than flat ones."""
    detail = patches.view(-1, PATCH * PATCH, 3).std(1).mean(1)
    weights = 0.15 + detail.clamp(max=0.5)
    drawn = patches[torch.multinomial(weights, min(160_000, len(patches)), generator=generator)]
    centroids = drawn[torch.randperm(len(drawn), generator=generator)[:count]].clone()
    for _ in range(iterations):
        centroids = _kmeans_step(drawn, centroids, generator)
    return PixelCodes(centroids, embed_centroids(centroids))


def _kmeans_step(patches: torch.Tensor, centroids: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    assigned = nearest(patches, centroids)
    sums = torch.zeros_like(centroids).index_add_(0, assigned, patches)
    sizes = torch.bincount(assigned, minlength=len(centroids)).float()[:, None]
    fresh = patches[torch.randint(len(patches), (len(centroids),), generator=generator)]
    return torch.where(sizes > 0, sums / sizes.clamp_min(1), fresh)


def embed_centroids(centroids: torch.Tensor, dim: int = 8) -> torch.Tensor:
    """(k, 48) -> (k, 8) of unit norm: whitened principal components, so near patches get near vectors."""
    centred = centroids - centroids.mean(0)
    _, scales, axes = torch.linalg.svd(centred, full_matrices=False)
    return F.normalize(centred @ axes[:dim].T / (scales[:dim] / scales[0]).sqrt(), dim=-1)


def recycle_codes(codes: PixelCodes, patches: torch.Tensor, wanted: int, generator: torch.Generator) -> torch.Tensor:
    """Moves the `wanted` least used codes, in place, to where `patches` (n, 48) are served worst.

    Used when backgrounds are added to an existing model: all other codes keep their number and meaning. Returns the
    numbers of the codes that changed; whatever a model knew about those has to be learnt again.
    """
    usage = torch.bincount(nearest(patches, codes.centroids), minlength=len(codes.centroids))
    freed = usage.argsort(stable=True)[:wanted]
    kept = torch.ones(len(codes.centroids), dtype=torch.bool)
    kept[freed] = False
    to_codebook = torch.linalg.lstsq(codes.centroids[kept], codes.codebook[kept]).solution
    served = codes.centroids[kept]
    errors = (patches - served[nearest(patches, served)]).square().sum(1)
    for code in freed.tolist():
        centroid = _worst_served(patches, errors, generator)
        codes.centroids[code] = centroid
        errors = torch.minimum(errors, (patches - centroid).square().sum(1))
    settle_codes(codes, patches, freed)
    codes.codebook[freed] = F.normalize(codes.centroids[freed] @ to_codebook, dim=-1)
    return freed


def settle_codes(codes: PixelCodes, patches: torch.Tensor, chosen: torch.Tensor) -> None:
    """Moves the chosen centroids, in place, to the mean of the patches they serve."""
    assigned = nearest(patches, codes.centroids)
    for code in chosen.tolist():
        served = patches[assigned == code]
        if len(served):
            codes.centroids[code] = served.mean(0)


def _worst_served(patches: torch.Tensor, errors: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A new centroid (48,): of a few candidates drawn by error, the one that lowers the summed error most."""
    candidates = torch.multinomial(errors + 1e-9, 8, generator=generator)
    gains, centroids = [], []
    for seed in patches[candidates]:
        better = (patches - seed).square().sum(1) < errors
        centroid = patches[better].mean(0) if better.any() else seed
        gains.append((errors - (patches - centroid).square().sum(1)).clamp_min(0).sum())
        centroids.append(centroid)
    return centroids[int(torch.stack(gains).argmax())]
