import json

import pytest
from command_results import one_error

from csd_pipeline.alignment import FILTERS
from csd_pipeline.drafters import DRAFTERS
from csd_pipeline.presets import preset_names
from csd_pipeline.relaxation import RELAXATIONS


def test_embedded_model_is_described_without_its_weights(csd, monkeypatch):
    import transformers

    def refuse(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(transformers.JanusForConditionalGeneration, "from_pretrained", refuse)
    result = csd("info", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["tokens"].startswith("256 per picture (16 x 16)")
    assert facts["stored as"] == "float16"
    assert facts["drafter"].startswith("JacobiDrafter (window 32, redraw gumbel")
    assert float(facts["parameters"].removesuffix(" M")) > 1
    shown = csd("info", "embedded", "--batch", 1).stdout
    assert "janus" in shown
    assert "1 pictures at once" in shown and "bytes" not in shown


def test_saved_pipelines_show_their_own_parts(csd, tmp_path):
    from csd_pipeline import CSDAutoregressivePipeline

    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipeline.load_preset("csd-janus-pro-1b")
    pipeline.save_pretrained(tmp_path / "saved")
    facts = json.loads(csd("info", "saved", "--json").stdout)
    assert "JacobiDrafter (window 16, redraw fresh" in facts["drafter"]
    assert "TVFilter" in facts["alignment_filter"]
    assert "guidance_scale 5.0" in facts["sampling"]
    assert "tokenizer" in facts["components"]
    assert facts["stored as"] == "float32"


def test_unknown_models_are_one_sentence(csd):
    one_error(csd("info", "embeded"), "did you mean 'embedded'")


def test_presets_are_listed_with_their_source(csd):
    shown = csd("presets").stdout
    assert all(f"{name}\n" in shown for name in preset_names())
    assert "arXiv 2606.27829" in shown
    assert set(json.loads(csd("presets", "fast", "--json").stdout)) == {"fast"}
    one_error(csd("presets", "fats"), "did you mean 'fast'")


@pytest.mark.parametrize(
    ("kind", "registry"), [("drafters", DRAFTERS), ("relaxations", RELAXATIONS), ("filters", FILTERS)]
)
def test_rules_list_every_registered_part(csd, kind, registry):
    table = json.loads(csd("rules", "--json").stdout)[kind]
    shown = csd("rules").stdout
    assert set(table) == set(registry)
    for name, part in table.items():
        assert part["class"] == registry[name].__name__
        assert f"{name} " in shown
        assert all(f"{knob} = {facts['default']}" in shown for knob, facts in part["knobs"].items())


def test_rules_explain_knobs_and_say_what_is_exact(csd):
    table = json.loads(csd("rules", "--json").stdout)
    assert table["relaxations"]["exact"]["exact"] == "yes"
    assert table["relaxations"]["entropy"]["exact"].startswith("no")
    assert ">= 0" in table["relaxations"]["entropy"]["knobs"]["lam"]["meaning"]
    assert table["relaxations"]["block"]["exact"] == "yes"


def test_rules_say_where_they_depart_from_their_source(csd):
    shown = " ".join(csd("rules").stdout.split())
    for name, part in json.loads(csd("rules", "--json").stdout)["relaxations"].items():
        assert part["departures"] == RELAXATIONS[name].departures
        assert f"departs: {part['departures']}" in shown
