"""One 64-bit seed per image, from a seed or from torch generators."""

from __future__ import annotations

from numbers import Integral

import torch

from .names import SEEDS


def image_seeds(images: int, seed: int | list[int] | None, generator) -> list[int]:
    """Seeds of a batch. Everything is checked before any generator is drawn from.

    Args:
        images: number of images.
        seed: image i gets ``seed + i`` (modulo 2**64), so it can be made again alone; or a list, one per image.
        generator: a torch.Generator every image draws its seed from in turn, or a list, one per image.

    Raises:
        ValueError: both given, a wrong number or kind of them, or a seed outside 0 .. 2**64 - 1.
    """
    if seed is not None and generator is not None:
        raise ValueError("got both seed and generator; give one of them")
    if isinstance(seed, (list, tuple)):
        _require_count("seeds", len(seed), images)
        return [_checked_seed(s) for s in seed]
    if seed is not None:
        return [(_checked_seed(seed) + i) % SEEDS for i in range(images)]
    if isinstance(generator, (list, tuple)):
        _require_count("generators", len(generator), images)
        return [_draw(g) for g in [_checked_generator(g) for g in generator]]
    generator = None if generator is None else _checked_generator(generator)
    return [_draw(generator) for _ in range(images)]


def _draw(generator: torch.Generator | None) -> int:
    device = generator.device if generator is not None else "cpu"
    return int(torch.randint(0, 2**63 - 1, (1,), generator=generator, device=device, dtype=torch.int64).item())


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < SEEDS:
        raise ValueError(f"seed must be an integer in 0 .. 2**64 - 1 (or a list, one per image), got {seed!r}")
    return int(seed)


def _checked_generator(generator: torch.Generator) -> torch.Generator:
    if not isinstance(generator, torch.Generator):
        raise ValueError(
            f"generator must be a torch.Generator (or a list, one per image), got {generator!r}; numbers go to seed="
        )
    return generator


def _require_count(what: str, got: int, images: int) -> None:
    if got != images:
        raise ValueError(f"got {got} {what} for {images} images; give one per image (prompts x num_images_per_prompt)")
