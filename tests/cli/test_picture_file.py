import pytest
from PIL import Image

from csd_pipeline.picture_file import RECIPE_KEY, read_recipe, save_picture

RECIPE = {
    "prompt": "ein Fuchs 🦊, 狐, \udcff",
    "seed": 2**64 - 1,
    "temperature": 1.0,
    "filter": None,
    "parts": [{"a": 0.1}],
}


def test_recipe_comes_back_whole_and_pixels_stay(tmp_path):
    picture = Image.effect_mandelbrot((20, 10), (-2, -1, 1, 1), 9).convert("RGB")
    save_picture(picture, tmp_path / "a.png", RECIPE)
    assert read_recipe(tmp_path / "a.png") == RECIPE
    with Image.open(tmp_path / "a.png") as read:
        assert read.tobytes() == picture.tobytes()
        assert read.text[RECIPE_KEY].isascii()


def test_what_carries_no_recipe_is_refused(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "plain.png")
    Image.new("RGB", (4, 4)).save(tmp_path / "photo.jpg")
    (tmp_path / "text.png").write_text("no picture")
    save_picture(Image.new("RGB", (64, 64)), tmp_path / "cut.png", RECIPE)
    content = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    for name in ("plain.png", "photo.jpg", "text.png", "cut.png"):
        with pytest.raises(ValueError, match=name):
            read_recipe(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nothing.png"):
        read_recipe(tmp_path / "nothing.png")
