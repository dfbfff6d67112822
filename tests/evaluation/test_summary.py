import pytest
import torch

from csd_pipeline.evaluation.bench import Run
from csd_pipeline.evaluation.summary import markdown, summarise


def run(arm: str, prompt: str, nfe: int, cpu: float, forward: float, token: int = 0) -> Run:
    tokens = torch.full((1, 4), token)
    return Run(arm, ord(prompt), prompt, 0, nfe, 255 / nfe, 0.0, 0.01, 2 * cpu, cpu, forward, tokens)


@pytest.fixture
def rows():
    runs = [run("ar", "a", 200, 2.0, 2.0), run("ar", "b", 200, 4.0, 4.0)]
    runs += [run("fast", "a", 50, 1.0, 0.8), run("fast", "b", 50, 2.0, 1.6, token=1)]
    return summarise(runs, {"fast": (0.5, 1.0)})


def test_ratios_compare_with_plain_decoding_of_the_same_prompt(rows):
    plain, fast = rows
    assert plain.wall_ratio == plain.cpu_ratio == plain.fewer_forwards == plain.same_as_plain == 1
    assert fast.fewer_forwards == 4 and fast.wall_ratio == pytest.approx(2) and fast.cpu_ratio == pytest.approx(2)


def test_efficiency_is_what_the_loop_lets_through(rows):
    fast = rows[1]
    assert fast.step_ratio == pytest.approx(1.6)  # .8 s / 50 against 2 s / 200
    assert fast.efficiency == pytest.approx(2 / (4 / 1.6)) and fast.overhead == pytest.approx(0.25)


def test_every_speed_has_its_drift_and_quality_beside_it(rows):
    fast = rows[1]
    assert (fast.drift_per_token, fast.subject, fast.background, fast.same_as_plain) == (0.01, 0.5, 1.0, 0.5)
    table = markdown(rows).splitlines()
    assert len(table) == 4 and all(line.count("|") == table[0].count("|") for line in table)
    assert "0.0100" in table[3] and "0.50" in table[3]
