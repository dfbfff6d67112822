"""Procedural backgrounds, drawn at 160 px so that a 128 px window can be cut at many places.

All lengths are in pixels of the 128 px picture. The tokens are computed on the picture averaged 2x2, where one token
covers 4x4 pixels (8x8 here): details are 2 px wide on even positions and patterns sit on the 8 px grid, so that they
stay crisp after averaging and need few different tokens.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image

SIZE = 160
MARGIN = 16
WHITE, BLACK = (255, 255, 255), (24, 24, 28)
YELLOW, ORANGE, TEAL, SKY = (252, 225, 120), (250, 175, 110), (40, 160, 160), (120, 185, 245)
RAINBOW = ((196, 23, 45), ORANGE, YELLOW, (175, 220, 55), (150, 215, 150), SKY, (180, 150, 225), (250, 175, 200))


def draw_texture(name: str, rng: np.random.Generator) -> np.ndarray:
    """One (160, 160, 3) uint8 picture of the texture."""
    if name not in TEXTURES:
        raise ValueError(f"unknown texture {name!r}; known: {', '.join(sorted(TEXTURES))}")
    return np.clip(TEXTURES[name](rng), 0, 255).astype(np.uint8)


def cut_window(name: str, texture: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """A random (size, size, 3) float32 window; patterns move by whole tokens, skies only sideways."""
    step = CROP_STEP.get(name, 2)
    room = SIZE - size
    x = step * int(rng.integers(room // step + 1))
    y = MARGIN if name in FIXED_HEIGHT else step * int(rng.integers(room // step + 1))
    window = texture[y : y + size, x : x + size]
    return (window[:, ::-1] if rng.random() < 0.5 else window).astype(np.float32)


def smooth_noise(rng: np.random.Generator, cell: int) -> np.ndarray:
    """(160, 160, 1) float32 in 0..1: random values every `cell` px, bicubic in between."""
    grid = (rng.random((SIZE // cell + 2, SIZE // cell + 2)) * 255).astype(np.uint8)
    return np.asarray(Image.fromarray(grid).resize((SIZE, SIZE), Image.BICUBIC), np.float32)[..., None] / 255


def _grid() -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    return y, x


def _grass(rng: np.random.Generator) -> np.ndarray:
    image = np.array([70, 140, 50]) + (smooth_noise(rng, 32) - 0.5) * np.array([40, 60, 30])
    for _ in range(420):
        x, y, height = 2 * rng.integers(0, SIZE // 2), rng.integers(8, SIZE + 12), rng.integers(8, 20)
        slope, shade = rng.uniform(-0.5, 0.5), rng.uniform(0.65, 1.5)
        rows = y - np.arange(height)
        columns = (x + slope * np.arange(height)).astype(int)
        inside = (rows >= 0) & (rows < SIZE) & (columns >= 0) & (columns < SIZE - 1)
        for dx in (0, 1):
            image[rows[inside], columns[inside] + dx] = np.array([75, 155, 55]) * shade
    return image


def _starry_night(rng: np.random.Generator) -> np.ndarray:
    image = np.array([14, 18, 50]) + smooth_noise(rng, 48) * np.array([25, 15, 60])
    for _ in range(70):
        x, y = 2 * rng.integers(1, SIZE // 2 - 1, 2)
        light = rng.uniform(0.4, 1) * 255
        if rng.random() < 0.25:
            image[y - 2 : y + 4, x : x + 2] = image[y : y + 2, x - 2 : x + 4] = light * 0.6
        image[y : y + 2, x : x + 2] = light
    return image


def _sea(rng: np.random.Generator) -> np.ndarray:
    y, x = _grid()
    phase = rng.uniform(0, 2 * np.pi, 2)
    swell = smooth_noise(rng, 24)[..., 0] * 5
    wave = np.sin(y * 0.275 + np.sin(x * 0.11 + phase[0]) * 1.3 + swell + phase[1])
    image = np.array([40, 120, 190]) + wave[..., None] * np.array([25, 35, 35])
    image[wave > 0.93] = [225, 240, 250]
    return image


def _brick_wall(rng: np.random.Generator) -> np.ndarray:
    image = np.full((SIZE, SIZE, 3), (205.0, 195.0, 185.0))
    for row in range(SIZE // 16):
        for left in range(-16 * (row % 2), SIZE, 32):
            shade = rng.uniform(0.8, 1.15)
            image[16 * row : 16 * row + 14, max(left, 0) : left + 30] = np.array([178, 88, 68]) * shade
    return image


def _wooden_table(rng: np.random.Generator) -> np.ndarray:
    y, x = _grid()
    wave = np.sin(x * 0.075 + y * 0.55 + smooth_noise(rng, 32)[..., 0] * 9 + rng.uniform(0, 6))
    grain = rng.normal(0, 8, (SIZE, SIZE, 1))
    return np.array([170, 115, 65]) + wave[..., None] * np.array([22, 18, 14]) + grain


def _sunset(rng: np.random.Generator) -> np.ndarray:
    height = (_grid()[0] / SIZE)[..., None]
    image = (1 - height) * np.array([95, 70, 150]) + height * np.array([255, 165, 90])
    clouds = smooth_noise(rng, 40) * smooth_noise(rng, 18)
    return image + np.clip(clouds - 0.25, 0, 1) * np.array([190, 130, 110])


def _cloudy_sky(rng: np.random.Generator) -> np.ndarray:
    clouds = np.clip((smooth_noise(rng, 40) * 0.7 + smooth_noise(rng, 20) * 0.3 - 0.45) * 4, 0, 1)
    return np.array(SKY) * (1 - clouds) + np.array(WHITE) * clouds


def _two_colours(pattern: np.ndarray, on: tuple, off: tuple) -> np.ndarray:
    return np.where(pattern[..., None], np.array(on), np.array(off)).astype(np.float32)


def _checkered_floor(rng: np.random.Generator) -> np.ndarray:
    y, x = _grid()
    return _two_colours((y // 16 + x // 16) % 2 == 0, WHITE, BLACK)


def _stripes(rng: np.random.Generator) -> np.ndarray:
    return _two_colours(_grid()[1] // 8 % 2 == 0, YELLOW, ORANGE)


def _polka_dots(rng: np.random.Generator) -> np.ndarray:
    y, x = _grid()
    distance = np.hypot(y % 16 - 7.5, x % 16 - 7.5)
    in_dot_cell = (y // 16 + x // 16) % 2 == 0
    cover = np.clip(6.5 - distance, 0, 1) * in_dot_cell
    return np.array(TEAL) + cover[..., None] * (np.array(WHITE) - np.array(TEAL))


def _rainbow(rng: np.random.Generator) -> np.ndarray:
    band = np.clip((_grid()[0].astype(int) - MARGIN) // 16, 0, 7)
    return np.array(RAINBOW, np.float32)[band]


TEXTURES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "grass": _grass,
    "starry_night": _starry_night,
    "sea": _sea,
    "brick_wall": _brick_wall,
    "wooden_table": _wooden_table,
    "sunset": _sunset,
    "checkered_floor": _checkered_floor,
    "stripes": _stripes,
    "polka_dots": _polka_dots,
    "cloudy_sky": _cloudy_sky,
    "rainbow": _rainbow,
}
CROP_STEP = {"brick_wall": 8, "checkered_floor": 16, "stripes": 8, "polka_dots": 16}
FIXED_HEIGHT = {"sunset", "rainbow"}
