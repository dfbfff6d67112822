"""What unconnected sockets and untouched widgets mean."""

import pytest

from comfy_nodes.methods import complete_method, presets, sampling_numbers
from comfy_nodes.run_memory import run_bytes
from csd_pipeline import EntropyRelaxation, JacobiDrafter
from csd_pipeline.presets import preset_names
from csd_pipeline.targets import PromptBatch, adapter_for


def test_no_drafter_is_the_one_that_returns_the_picture_of_plain_decoding():
    drafter = complete_method()["drafter"]
    assert (drafter.config.redraw, drafter.config.window) == ("gumbel", 32)


def test_a_relaxation_without_a_drafter_gets_coupled_drafts_and_given_parts_stay():
    rule, own = EntropyRelaxation(lam=0.2), JacobiDrafter(window=4)
    assert complete_method(relaxation=rule)["drafter"].config.redraw == "coupled"
    assert complete_method(own, rule, None) == {"drafter": own, "relaxation": rule, "alignment_filter": None}


def test_negative_numbers_leave_the_choice_to_the_model():
    assert set(sampling_numbers(-1.0, -1.0, -1, -1.0).values()) == {None}
    assert sampling_numbers(0.0, 0.0, 0, 0.0) == {"guidance_scale": 0.0, "temperature": 0.0, "top_k": 0, "top_p": 0.0}


def test_every_preset_is_offered_once_the_general_ones_first():
    assert presets()[:4] == ["exact", "balanced", "fast", "ar"]
    assert sorted(presets()) == sorted(preset_names())


@pytest.mark.parametrize("images", [1, 3])
def test_memory_asked_for_covers_the_cache_a_run_really_has(embedded, images):
    adapter = adapter_for(embedded.target)
    ids, mask, other, other_mask = embedded.encode_prompt("red apple on white", images)
    session = adapter.open(PromptBatch(ids, mask, other, other_mask), 32)
    session.prefill()
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in session.cache.layers)
    asked = run_bytes(embedded.target, adapter, images, 32)
    laws = images * 32 * adapter.vocabulary * 4
    noise = images * adapter.grid.tokens * adapter.vocabulary * 4
    assert held + 4 * laws + noise < asked < 3 * held + 40 * laws + 2 * noise
