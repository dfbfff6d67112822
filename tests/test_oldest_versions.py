"""The versions that are tested as the oldest are the ones that the package declares as the oldest."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_oldest_pins_are_the_declared_lower_bounds():
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("dependencies = [")[2].partition("]")[0]
    bounds = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', declared))
    assert len(bounds) == declared.count('"') / 2
    pinned = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)$", pinned, re.MULTILINE))
    del bounds["torch"]  # the tests run with one torch
    assert [name for name, bound in bounds.items() if not f"{pins[name]}.".startswith(f"{bound}.")] == []
