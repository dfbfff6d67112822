"""--size: parsed before anything is loaded, refused by name where the model can not draw it, kept in the recipe."""

import pytest
from command_results import one_error

from csd_pipeline.cli.jobs import job_from_picture, parse_size
from csd_pipeline.picture_file import read_recipe


def test_width_comes_first():
    assert parse_size("768x512") == parse_size(" 768X512 ") == parse_size("768×512") == (512, 768)
    assert parse_size(None) is None


@pytest.mark.parametrize("text", ["768", "768x", "x512", "0x512", "768x-1", "768x512x3", "1e3x4", "large", ""])
def test_anything_else_is_one_sentence_before_the_model_loads(csd, no_model, text):
    one_error(csd("generate", "x", "--size", text), "give width x height in pixels")


def test_a_size_the_model_can_not_draw_names_those_it_can(csd, tmp_path):
    one_error(csd("generate", "x", "--size", "512x768"), "this model draws 128x128 pixels", "width=512, height=768")
    assert not list(tmp_path.glob("*.png"))


def test_the_size_is_in_the_recipe_and_taken_from_it(csd, tmp_path):
    result = csd("generate", "rocket", "--seed", 1, "--size", "128x128", "--preset", "fast")
    assert result.exit_code == 0, result.output
    recipe = read_recipe(tmp_path / "rocket-1.png")
    assert (recipe["width"], recipe["height"]) == (128, 128)
    assert job_from_picture("rocket-1.png", None).size == (128, 128)
    one_error(csd("generate", "--from", "rocket-1.png", "--size", "128x128"), "leave out --size")
