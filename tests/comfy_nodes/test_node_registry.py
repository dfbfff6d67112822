"""Nodes made from the registries: every part has one, and its widgets hold only what the part takes."""

import inspect

import pytest

from comfy_nodes.knobs import LEFT_OPEN, knobs_of
from comfy_nodes.registry import camel_case, parts
from csd_pipeline import JacobiDrafter
from csd_pipeline.recipe import describe

EVERY_PART = pytest.mark.parametrize("part", parts(), ids=lambda part: part.node_id)
EVERY_KNOB = pytest.mark.parametrize(
    ("part", "knob"), [(p, k) for p in parts() for k in p.knobs], ids=lambda x: getattr(x, "node_id", None) or x.name
)


def test_ids_are_unique_and_those_promised_stand():
    ids = [part.node_id for part in parts()]
    assert len(set(ids)) == len(ids)
    promised = {"CSDJacobiDrafter", "CSDRelaxationExact", "CSDRelaxationEntropy"}
    assert promised | {"CSDFilterTV", "CSDFilterKL", "CSDFilterBudget"} <= set(ids)


@EVERY_PART
def test_a_widget_for_every_argument_in_its_order(part):
    arguments = [name for name in inspect.signature(part.cls.__init__).parameters if name != "self"]
    assert [knob.name for knob in part.knobs] == arguments
    assert part.summary and part.source


@EVERY_PART
def test_widgets_left_alone_build_the_default_part(part):
    built = part.build(**{knob.name: knob.default for knob in part.knobs})
    assert describe(built) == describe(part.cls())


@EVERY_KNOB
def test_a_widget_says_what_it_does_and_starts_inside_its_range(part, knob):
    assert knob.tooltip
    if knob.kind == "choice":
        assert knob.default in knob.choices
    if knob.kind in ("float", "int"):
        assert knob.low <= knob.default <= knob.high


@EVERY_KNOB
def test_the_part_takes_every_choice_and_both_ends_of_a_range(part, knob):
    for value in (*knob.choices, knob.low, knob.high):
        if value is not None:
            assert part.build(**{knob.name: value}).config[knob.name] == knob.value(value)


def test_the_redraw_may_be_left_to_the_pipeline():
    (jacobi,) = [part for part in parts() if part.cls is JacobiDrafter]
    (redraw,) = [knob for knob in jacobi.knobs if knob.name == "redraw"]
    assert redraw.choices == ("fresh", "coupled", "gumbel", "auto")


@pytest.mark.parametrize(
    ("annotation", "default", "meaning", "expected"),
    [
        ("float", 0.5, "strength, >= 0; 0 is exact", ("float", 0.0, 1000.0)),
        ("float", 0.5, "share in [0, 1]", ("float", 0.0, 1.0)),
        ("float", 0.5, "gap in (0, 0.5]", ("float", 0.01, 0.5)),
        ("float", 0.5, "budget > 0", ("float", 0.01, 1000.0)),
        ("float", 0.5, "anything", ("float", -1000.0, 1000.0)),
        ("int", 3, "tokens, >= 1: some", ("int", 1, 4096)),
        ("int", 3, "longest phrase, 1 to 4; 1 is exact", ("int", 1, 4)),
        ("float | None", None, "limit in [0, 1]; None is none", ("float", LEFT_OPEN, 1.0)),
    ],
)
def test_ranges_are_read_off_the_text(annotation, default, meaning, expected):
    knob = made(annotation, default, meaning)
    assert (knob.kind, knob.low, knob.high) == expected
    assert isinstance(knob.low, int) == (knob.kind == "int" or knob.optional)


def test_an_optional_knob_left_open_is_none():
    number, text = made("float | None", None, ""), made("str | None", None, "a file")
    assert number.value(LEFT_OPEN) is None and number.value(0.0) == 0.0
    assert text.kind == "text" and text.value("") is None and text.value("a") == "a"


def test_quoted_words_are_choices_only_if_the_default_is_one_of_them():
    assert made("str", "a", 'either "a" or "b-c"').choices == ("a", "b-c")
    assert made("str", "x", 'a file, like "a" or "b"').kind == "text"


def test_an_argument_no_widget_can_hold_is_named():
    with pytest.raises(TypeError, match=r"knob.*list"):
        made("list", [], "things")


def test_node_names():
    assert [camel_case(name) for name in ("entropy", "tv", "csd_block")] == ["Entropy", "TV", "CsdBlock"]


def made(annotation, default, meaning):
    def init(self, knob=default):
        """Takes one argument."""

    init.__annotations__["knob"] = annotation
    return knobs_of(type("Thing", (), {"__init__": init}), {"knob": meaning})[0]
