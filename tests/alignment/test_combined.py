import json

import pytest
import torch
from helpers import random_laws, window_of

from csd_pipeline.alignment import CombinedFilter, DriftBudget, KLFilter, TVFilter


def test_and_flattens_and_keeps_every_knob():
    combined = TVFilter(0.3) & DriftBudget(0.05) & KLFilter(0.7, "reverse")
    assert [dict(part) for part in combined.config.parts] == [
        {"_class_name": "TVFilter", "delta": 0.3},
        {"_class_name": "DriftBudget", "budget": 0.05},
        {"_class_name": "KLFilter", "delta": 0.7, "direction": "reverse"},
    ]
    grouped = TVFilter(0.3) & (DriftBudget(0.05) & KLFilter(0.7, "reverse"))
    assert grouped.config.parts == combined.config.parts


def test_saved_file_is_plain_json_in_the_filter_config(tmp_path):
    (TVFilter(0.3) & DriftBudget(0.05)).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "filter_config.json").read_text())
    assert saved["_class_name"] == "CombinedFilter" and [p["_class_name"] for p in saved["parts"]] == [
        "TVFilter",
        "DriftBudget",
    ]
    loaded = CombinedFilter.from_pretrained(tmp_path)
    assert [type(p) for p in loaded._parts] == [TVFilter, DriftBudget] and loaded._parts[0].config.delta == 0.3


def test_the_smaller_gate_wins_and_gates_do_not_multiply():
    laws = random_laws(12, 5, zeros=0.3).view(2, 2, 3, 5)
    window, drift = window_of(*laws), torch.tensor([[0.4, 0.1, 0.0], [0.8, 0.05, 0.3]])
    parts = (DriftBudget(0.2), DriftBudget(0.1), TVFilter(0.6))
    gate = (parts[0] & parts[1] & parts[2]).gate(window, drift)
    assert torch.equal(gate, torch.minimum(parts[1].gate(window, drift), parts[2].gate(window, drift)))
    assert gate[0, 0] in (0, 0.25)


def test_closed_when_any_part_is():
    assert (TVFilter(0.5) & DriftBudget(0.0)).always_closed and not (TVFilter(0.5) & DriftBudget(0.1)).always_closed


def test_bad_parts_are_refused():
    with pytest.raises(ValueError, match="needs at least one part"):
        CombinedFilter()
    with pytest.raises(ValueError, match=r"unknown alignment filter 'TVFiltre' \(did you mean 'TVFilter'\?\)"):
        CombinedFilter(parts=[{"_class_name": "TVFiltre"}])
    with pytest.raises(ValueError, match="delta must be between 0 and 1, got 7"):
        CombinedFilter(parts=[{"_class_name": "TVFilter", "delta": 7}])
