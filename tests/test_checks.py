import math

import pytest

from csd_pipeline.checks import construct, nearest, require_at_least, require_between, require_choice, require_integer


def test_good_values_pass():
    require_at_least("x", 0, 0)
    require_between("x", 1.0, 0, 1)
    require_integer("x", 3, 3)
    require_choice("x", "a", ("a", "b"))


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, None, "1", True])
def test_bad_numbers(value):
    with pytest.raises(ValueError, match=rf"^x must be a number >= 0, got {value!r}$"):
        require_at_least("x", value, 0)
    with pytest.raises(ValueError, match=rf"^x must be between 2 and 3, got {value!r}$"):
        require_between("x", value, 2, 3)


@pytest.mark.parametrize("value", [0, 1.0, True, None, "2"])
def test_bad_integers(value):
    with pytest.raises(ValueError, match=rf"^x must be an integer >= 1, got {value!r}$"):
        require_integer("x", value, 1)


class Knobs:
    def __init__(self, strength=1.0, guard=True):
        self.strength, self.guard = strength, guard


def test_construct_takes_known_knobs_and_true_switches_only():
    assert construct(Knobs, {"guard": False}).guard is False
    with pytest.raises(ValueError, match=r"^Knobs has no knob 'gaurd' \(did you mean 'guard'\?\); it has: guard"):
        construct(Knobs, {"gaurd": False})
    for value in ("false", 0, None):
        with pytest.raises(ValueError, match=rf"^guard of knobs must be true or false, got {value!r}$"):
            construct(Knobs, {"guard": value}, "knobs")


def test_unknown_names_offer_the_nearest_and_all_known():
    with pytest.raises(ValueError, match=r"^unknown mode 'freash' \(did you mean 'fresh'\?\); known: fresh, coupled$"):
        require_choice("mode", "freash", ("fresh", "coupled"))
    assert nearest("zzz", ("fresh", "coupled")) == ""
