import pytest

from csd_pipeline.cli.bench_arms import DEFAULT_ARMS, QUICK_ARMS, build_arms
from csd_pipeline.presets import preset_names
from csd_pipeline.recipe import describe
from csd_pipeline.relaxation import RELAXATIONS


def build(text: str, windows=(8,)):
    return build_arms((text,), windows)[2:]


def test_plain_decoding_comes_first_with_its_own_and_with_other_seeds():
    plain, other = build_arms((), (8,))
    assert (plain.name, plain.seed_offset) == ("ar", 0) and other.seed_offset > 0
    assert plain.parts["drafter"].window == 1


def test_words_are_the_options_of_generate():
    (arm,) = build("entropy:lam=0.3,relax_fresh=yes filter=tv:delta=0.4 filter=budget:budget=0.1 window=5 redraw=fresh")
    relaxation = arm.parts["relaxation"].config
    assert (relaxation.lam, relaxation.relax_fresh, relaxation.support_guard) == (0.3, True, True)
    assert (arm.parts["drafter"].window, arm.parts["drafter"].config.redraw) == (5, "fresh")
    filters = arm.parts["alignment_filter"].config.parts
    assert [(part["_class_name"], *list(part.values())[1:]) for part in filters] == [
        ("TVFilter", 0.4),
        ("DriftBudget", 0.1),
    ]


def test_the_long_forms_say_the_same():
    (short,), (long,) = build("entropy:lam=0.3"), build("relaxation=entropy relax=lam=0.3")
    assert describe(short.parts["relaxation"]) == describe(long.parts["relaxation"])


def test_a_preset_is_changed_knob_by_knob():
    (arm,) = build("balanced:lam=0.25 redraw=fresh filter=none draft=guide=growth,record=lossy")
    assert (arm.parts["drafter"].config.guide, arm.parts["drafter"].config.record) == ("growth", "lossy")
    assert arm.parts["relaxation"].config.lam == 0.25 and arm.parts["alignment_filter"] is None
    assert arm.parts["drafter"].config.redraw == "fresh" and arm.parts["drafter"].config.init == "mean"


def test_windows_multiply_the_arms_that_name_none():
    assert [arm.name for arm in build("balanced", (4, 16))] == ["balanced W=4", "balanced W=16"]
    (arm,) = build("balanced window=2 label=mine", (4, 16))
    assert arm.name == "mine W=2" and arm.parts["drafter"].window == 2


@pytest.mark.parametrize("name", [*preset_names(), *RELAXATIONS])
def test_every_preset_and_every_relaxation_is_an_arm_by_name(name):
    assert [arm.parts["drafter"].window for arm in build(name, (2, 9))] == [2, 9]


def test_default_arms_build_and_the_naive_one_has_a_twin():
    arms = build_arms(DEFAULT_ARMS, (4, 8, 16, 32))
    (naive,) = (arm for arm in arms if arm.loop == "naive")
    twin = {kind: describe(part) for kind, part in naive.parts.items()}
    assert [arm.name for arm in arms if {k: describe(p) for k, p in arm.parts.items()} == twin] == [
        "csd-paper W=16",
        naive.name,
    ]
    assert len(build_arms(QUICK_ARMS, (16,))) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("balancd", "unknown preset or relaxation 'balancd' .did you mean 'balanced'"),
        ("entrpy:lam=0.5", "did you mean 'entropy'"),
        ("entropy:lamb=0.5", "did you mean 'lam'"),
        ("entropy:lam=-1", "lam must be a number >= 0, got -1"),
        ("entropy:lam", "takes KNOB=VALUE, got 'lam'"),
        ("balanced filter=tvv:delta=0.5", "did you mean 'tv'"),
        ("balanced filter=tv:dleta=0.5", "did you mean 'delta'"),
        ("balanced windw=4", "'windw=4' .did you mean 'window'.. is no OPTION=VALUE"),
        ("balanced coupled", "'coupled' is no OPTION=VALUE; known: preset, drafter, window"),
        ("balanced window=0", "window must be an integer >= 1, got 0"),
        ("balanced window=auto", "a comparison needs knobs that stay; choose window and redraw"),
        ("balanced redraw=auto", "a comparison needs knobs that stay; choose window and redraw"),
        ("balanced redraw=couple", "did you mean 'coupled'"),
        ("balanced loop=naiv", "did you mean 'naive'"),
        ("balanced loop=naive", "loop=naive repeats released loops"),
        ("preset=fst", "did you mean 'fast'"),
        (" ", "got an empty arm"),
    ],
)
def test_a_bad_arm_is_refused_with_the_nearest_name(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)


def test_two_arms_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"two arms are called 'balanced W=8'.*label=NAME"):
        build_arms(("balanced", "balanced"), (8,))
