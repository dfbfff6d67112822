"""Runs made by hand, shared by the tests of the comparison."""

import torch

from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.evaluation.arms import Arm, plain_arms
from csd_pipeline.evaluation.runs import Run
from csd_pipeline.relaxation import EntropyRelaxation

PARTS = {
    "drafter": JacobiDrafter(4, "fresh", "uniform"),
    "relaxation": EntropyRelaxation(0.5, support_guard=False, relax_fresh=True),
    "alignment_filter": None,
}
ARMS = [*plain_arms(), Arm("fast W=4", PARTS), Arm("naive W=4", PARTS, loop="naive")]


def run_of(arm: str, number: int, accepted: list[int], forward: float, outside: float, **changes) -> Run:
    """Nine tokens; ``forward`` seconds inside the forwards, ``outside`` outside, 0.5 for the prefill."""
    wall = 0.5 + forward + outside
    times = {"wall": wall, "cpu": 2 * wall, "prefill_wall": 0.5, "forward_wall": forward, "forward_cpu": 2 * forward}
    figures = {"drift_per_token": 0.0, "nats_per_token": 3.0, "subject": True, "background": True} | times
    figures |= {"drafted": [3 if count else 0 for count in accepted], "tokens": torch.full((1, 9), number)}
    return Run(arm, number, "a prompt", 5, len(accepted), accepted, **(figures | changes))


def hand_runs() -> list[Run]:
    """Two prompts. Plain decoding: 8 forwards of 1 s and 2 s; the others 2 and 4 forwards for the same eight tokens."""
    runs = []
    for number, second in ((0, 1.0), (1, 2.0)):
        runs.append(run_of("ar", number, [0] * 8, 8 * second, 0.5))
        runs.append(run_of("ar (other seeds)", number, [0] * 8, 8 * second, 0.5, tokens=torch.full((1, 9), 7)))
    for arm, outside in (("fast W=4", 0.5), ("naive W=4", 3.5)):
        runs.append(run_of(arm, 0, [3, 3], 3.0, outside, drift_per_token=0.1))
        runs.append(run_of(arm, 1, [1, 3, 0, 0], 8.0, outside, drift_per_token=0.3, subject=False))
    runs.append(run_of("transformers", 0, [0] * 8, 8.0, 3.5, forward_wall=None, prefill_wall=None, drafted=[]))
    runs.append(run_of("transformers", 1, [0] * 8, 16.0, 1.5, forward_wall=None, prefill_wall=None, drafted=[]))
    return runs
