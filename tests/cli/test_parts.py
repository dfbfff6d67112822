import click
import pytest

from csd_pipeline.alignment import CombinedFilter, DriftBudget, TVFilter
from csd_pipeline.cli.parts import PartOptions, WindowOption, choose_parts, knob_text
from csd_pipeline.presets import build_parts, preset_names, read_preset
from csd_pipeline.recipe import describe, rebuild_parts


def parts_of(preset: str = "exact", **options) -> dict:
    return choose_parts(PartOptions(**options), build_parts(read_preset(preset)))


def test_without_options_the_parts_stay():
    base = build_parts(read_preset("fast"))
    assert choose_parts(PartOptions(), base) == base


def test_a_knob_changes_alone():
    fast = describe(parts_of("fast")["drafter"])
    assert fast["window"] != 5
    drafter = parts_of("fast", window=5, draft=("guide=growth", "growth_weight=2"))["drafter"]
    assert describe(drafter) == fast | {"window": 5, "guide": "growth", "growth_weight": 2.0}
    relaxation = parts_of("fast", relax=("relax_fresh=yes",))["relaxation"]
    assert (relaxation.config.lam, relaxation.config.relax_fresh) == (0.5, True)


def test_a_window_may_be_automatic():
    assert parts_of("fast", window="auto")["drafter"].config.window == "auto"
    assert [WindowOption().convert(text, None, None) for text in ("auto", "12")] == ["auto", 12]
    for text in ("wide", "Auto", "1.5"):
        with pytest.raises(click.BadParameter, match=f"'{text}' is neither a number nor the word auto"):
            WindowOption().convert(text, None, None)


@pytest.mark.parametrize(("knob", "value"), [("window", 3), ("redraw", "fresh")])
def test_a_knob_that_is_given_twice_is_refused(knob, value):
    with pytest.raises(ValueError, match=f"{knob} is given twice, by --{knob} and by --draft {knob}=auto; leave one"):
        parts_of("exact", **{knob: value}, draft=(f"{knob}=auto",))


def test_another_rule_starts_from_its_own_defaults():
    relaxation = parts_of(relaxation="entropy", relax=("lam=2",))["relaxation"]
    assert (relaxation.config.lam, relaxation.config.support_guard) == (2.0, True)


def test_missing_parts_are_filled_when_a_knob_is_given():
    none = dict.fromkeys(("drafter", "relaxation", "alignment_filter"))
    assert choose_parts(PartOptions(window=3), none)["drafter"].config.window == 3


def test_filters_combine_replace_and_go():
    combined = parts_of(filters=("tv:delta=0.5", "budget:budget=0.2"))["alignment_filter"]
    assert isinstance(combined, CombinedFilter)
    assert [type(part) for part in combined._parts] == [TVFilter, DriftBudget]
    assert parts_of("fast", filters=("kl:delta=1,direction=reverse",))["alignment_filter"].config.direction == "reverse"
    assert parts_of("fast", filters=("none",))["alignment_filter"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drafter": "jacoby"}, "did you mean 'jacobi'"),
        ({"window": 0}, "window must be an integer >= 1, got 0"),
        ({"window": "wide"}, "window must be a number like 16, got 'wide'"),
        ({"redraw": "gumble"}, "did you mean 'gumbel'"),
        ({"draft": ("redrow=fresh",)}, "did you mean 'redraw'"),
        ({"draft": ("guide",)}, "--draft takes KNOB=VALUE"),
        ({"relaxation": "entropi"}, "did you mean 'entropy'"),
        ({"relaxation": "entropy", "relax": ("lamb=1",)}, "did you mean 'lam'"),
        ({"relaxation": "entropy", "relax": ("lam=-1",)}, "lam must be a number >= 0"),
        ({"relaxation": "entropy", "relax": ("lam=auto",)}, "lam must be a number >= 0, got 'auto'"),
        ({"relaxation": "entropy", "relax": ("lam=much",)}, "lam must be a number like 0.5, got 'much'"),
        ({"relaxation": "entropy", "relax": ("lam",)}, "--relax takes KNOB=VALUE"),
        ({"relax": ("relax_fresh=maybe",)}, "unknown relax_fresh 'maybe'"),
        ({"filters": ("tv:delta=1.5",)}, "delta must be between 0 and 1, got 1.5"),
        ({"filters": ("tv:dleta=0.5",)}, "did you mean 'delta'"),
        ({"filters": ("bugdet",)}, "did you mean 'budget'"),
        ({"filters": ("none", "tv")}, "unknown filter 'none'"),
    ],
)
def test_bad_parts_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        parts_of(**options)


@pytest.mark.parametrize("preset", preset_names())
def test_recipes_rebuild_every_preset(preset):
    described = {name: describe(part) for name, part in build_parts(read_preset(preset)).items()}
    assert {name: describe(part) for name, part in rebuild_parts(described).items()} == described


def test_recipes_of_another_version_are_refused():
    with pytest.raises(ValueError, match="unknown drafter in the recipe 'LaterDrafter'"):
        rebuild_parts({"drafter": {"_class_name": "LaterDrafter"}, "relaxation": {"_class_name": "Exact"}})


def test_knob_text():
    assert knob_text(None) == "none"
    assert knob_text({"name": "jacobi", "window": 3, "redraw": "fresh"}) == "jacobi (window 3, redraw fresh)"
    assert (
        knob_text({"_class_name": "C", "parts": [{"_class_name": "A", "x": 1}, {"_class_name": "B"}]}) == "A (x 1) & B"
    )
