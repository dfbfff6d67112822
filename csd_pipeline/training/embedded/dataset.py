"""Pictures with captions, rendered afresh for every training step.

Every sample depends only on (seed, step, index), so a resumed run and a run split over any number of processes see
exactly the same data.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .captions import canonical_caption, random_caption
from .catalogue import Catalogue, load_catalogue
from .sources import load_sprites
from .textures import cut_window, draw_texture

PICTURE_SIZE = 128
TEXTURED_SHARE = 0.5


@dataclass(frozen=True)
class Sample:
    """A (128, 128, 3) uint8 picture, its caption and its labels (positions in the catalogue)."""

    picture: np.ndarray
    caption: str
    subject: int
    background: int


class StickerDataset:
    """Sprites centred on backgrounds. `textures` maps a texture name to (n, 160, 160, 3) uint8 drawings."""

    def __init__(self, catalogue: Catalogue, sprites: np.ndarray, textures: dict[str, np.ndarray]):
        if len(sprites) != len(catalogue.subjects):
            raise ValueError(f"got {len(sprites)} sprites for {len(catalogue.subjects)} subjects")
        self.catalogue, self.sprites, self.textures = catalogue, sprites, textures

    def sample(self, seed: int, step: int, index: int, held_out: bool | None = False) -> Sample:
        """Sample `index` of the batch of `step`; `held_out` None draws from both sides of the split."""
        rng = np.random.default_rng((seed, step, index))
        subject, background = self.pick(rng, held_out)
        picture = self.render(subject, background, rng)
        return Sample(picture, random_caption(self.catalogue, subject, background, rng), subject, background)

    def pick(self, rng: np.random.Generator, held_out: bool | None) -> tuple[int, int]:
        """A random pair: plain and textured backgrounds equally often."""
        while True:
            kind = self.catalogue.textured if rng.random() < TEXTURED_SHARE else self.catalogue.plain
            subject, background = int(rng.integers(len(self.sprites))), int(rng.choice(kind))
            if held_out is None or self.catalogue.is_held_out(subject, background) == held_out:
                return subject, background

    def render(self, subject: int, background: int, rng: np.random.Generator) -> np.ndarray:
        """The (128, 128, 3) uint8 picture of a pair, on a random cut of the background."""
        canvas = self._background(background, rng)
        sprite = self.sprites[subject].astype(np.float32)
        edge = (PICTURE_SIZE - sprite.shape[0]) // 2
        inner = canvas[edge : PICTURE_SIZE - edge, edge : PICTURE_SIZE - edge]
        inner[:] = inner * (1 - sprite[..., 3:] / 255) + sprite[..., :3]
        return canvas.clip(0, 255).astype(np.uint8)

    def _background(self, background: int, rng: np.random.Generator) -> np.ndarray:
        place = self.catalogue.backgrounds[background]
        if place.is_plain:
            return np.full((PICTURE_SIZE, PICTURE_SIZE, 3), place.colour, np.float32)
        drawings = self.textures[place.texture]
        return cut_window(place.texture, drawings[rng.integers(len(drawings))], PICTURE_SIZE, rng).copy()

    def canonical_caption(self, subject: int, background: int) -> str:
        return canonical_caption(self.catalogue, subject, background)


def load_textures(catalogue: Catalogue, work_dir: Path, count: int, seed: int) -> dict[str, np.ndarray]:
    """`count` drawings of every texture, cached and memory-mapped so that processes share them."""
    folder = work_dir / "textures"
    folder.mkdir(parents=True, exist_ok=True)
    banks = {}
    for position, name in enumerate(sorted(b.texture for b in catalogue.backgrounds if b.texture)):
        path = folder / f"{name}-{count}-{seed}.npy"
        if not path.exists():
            rng = np.random.default_rng((seed, position))
            np.save(path, np.stack([draw_texture(name, rng) for _ in range(count)]))
        banks[name] = np.load(path, mmap_mode="r")
    return banks


def load_dataset(work_dir: Path, texture_count: int, seed: int) -> StickerDataset:
    """The data set of the shipped catalogue; fetches and builds what the work directory lacks."""
    work_dir = Path(work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    catalogue = load_catalogue()
    sprites = load_sprites(catalogue, work_dir)
    return StickerDataset(catalogue, sprites, load_textures(catalogue, work_dir, texture_count, seed))
