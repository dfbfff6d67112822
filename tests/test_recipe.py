import subprocess
import sys

import pytest

from csd_pipeline.recipe import check_recipe, rebuild_parts

PARTS = {"drafter": {"_class_name": "JacobiDrafter", "window": 2}, "relaxation": {"_class_name": "Exact"}}
RECIPE = {"model": "embedded", "prompt": "x", "seed": 1} | PARTS


def test_good_recipes_pass():
    check_recipe(RECIPE)
    check_recipe(RECIPE | {"seed": 2**64 - 1, "temperature": 1, "top_k": 0, "dtype": None, "alignment_filter": None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "1"}, "seed '1'; it must be an integer in 0 .. 2**64 - 1"),
        ({"seed": 1.0}, "seed 1.0; it must be an integer"),
        ({"seed": True}, "seed True; it must be an integer"),
        ({"seed": 2**64}, f"seed {2**64}; it must be an integer in 0 .. 2**64 - 1"),
        ({"seed": None}, "does not say seed"),
        ({"prompt": ["x"]}, "prompt ['x']; it must be a text"),
        ({"prompt": None, "model": None}, "does not say model, prompt"),
        ({"model": 5}, "model 5; it must be a name"),
        ({"negative_prompt": 5}, "negative_prompt 5; it must be a text"),
        ({"dtype": 5}, "dtype 5; it must be the name of a torch dtype"),
        ({"guidance_scale": "2"}, "guidance_scale '2'; it must be a number"),
        ({"top_k": 1.5}, "top_k 1.5; it must be an integer"),
        ({"drafter": "jacobi"}, "drafter 'jacobi'; it must be an object with a _class_name"),
        ({"relaxation": []}, "relaxation []; it must be an object with a _class_name"),
        ({"alignment_filter": "tv"}, "alignment_filter 'tv'; it must be an object with a _class_name"),
        ({"versions": "2.0"}, "versions '2.0'; it must be an object"),
        ({"tokens_sha256": 5}, "tokens_sha256 5; it must be a text"),
    ],
)
def test_wrong_entries_are_named(change, message):
    with pytest.raises(ValueError) as error:
        check_recipe(RECIPE | change, "the recipe in a.png")
    assert str(error.value).startswith("the recipe in a.png ") and message in str(error.value)


def test_a_recipe_is_an_object():
    with pytest.raises(ValueError, match=r"the recipe must be a JSON object, got \[1\]"):
        check_recipe([1])


def test_checking_needs_no_torch():
    code = f"import sys; from csd_pipeline.recipe import check_recipe; check_recipe({RECIPE})"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drafter": None}, "drafter in the recipe must be an object with a _class_name, got None"),
        ({"drafter": "JacobiDrafter"}, "drafter in the recipe must be an object"),
        ({"drafter": {"window": 2}}, "unknown drafter in the recipe ''"),
        ({"drafter": {"_class_name": ["JacobiDrafter"]}}, "unknown drafter in the recipe ['JacobiDrafter']"),
        ({"drafter": {"_class_name": "JacobiDrafter", "window": "2"}}, "window must be an integer >= 1, got '2'"),
        ({"relaxation": {"_class_name": "EntropyRelaxation", "lam": "x"}}, "lam must be a number >= 0, got 'x'"),
        (
            {"relaxation": {"_class_name": "Exact", "support_guard": "no"}},
            "support_guard of Exact must be true or false, got 'no'",
        ),
        ({"alignment_filter": {}}, "unknown alignment filter ''"),
        ({"alignment_filter": "TVFilter"}, "an alignment filter must be an object with a _class_name, got 'TVFilter'"),
        ({"alignment_filter": {"_class_name": "TVFilter", "delta": None}}, "delta must be between 0 and 1, got None"),
        ({"alignment_filter": {"_class_name": "CombinedFilter", "parts": 5}}, "at least one part, in a list"),
        ({"alignment_filter": {"_class_name": "CombinedFilter", "parts": ["tv"]}}, "got 'tv'"),
    ],
)
def test_wrong_parts_are_one_sentence(change, message):
    with pytest.raises(ValueError) as error:
        rebuild_parts(PARTS | change)
    assert message in str(error.value)
