from bench_runs import ARMS, hand_runs

from csd_pipeline.evaluation.summary import summarise
from csd_pipeline.evaluation.tables import COLUMNS, cells, markdown, naive_lines

ROWS = summarise(hand_runs(), ARMS, {"fast W=4": 12_400_000})


def cell(arm: str, column: str) -> str:
    (row,) = (row for row in ROWS if row.arm == arm)
    return cells(row)[[name for name, _ in COLUMNS].index(column)]


def test_every_line_has_every_column():
    lines = markdown(ROWS).splitlines()
    assert len(lines) == 2 + len(ROWS) and {line.count("|") for line in lines} == {len(COLUMNS) + 1}
    assert all("nan" not in line for line in lines)


def test_speed_never_stands_without_drift_and_quality():
    for row in ROWS:
        assert "-" not in (cell(row.arm, "nats/token"), cell(row.arm, "drift/token"), cell(row.arm, "subject"))
    assert cell("fast W=4", "wall clock").startswith("2.07x (1.9")
    assert cell("fast W=4", "drift/token") == "0.2000 (0.1200-0.2800)" and cell("fast W=4", "subject") == "50 %"


def test_low_efficiency_is_marked():
    assert cell("naive W=4", "efficiency") == "0.60 !" and cell("fast W=4", "efficiency") == "0.89"
    assert cell("transformers", "efficiency") == "-" and cell("fast W=4", "peak MB") == "12"


def test_the_naive_loop_gets_a_sentence():
    (line,) = naive_lines(ROWS)
    assert line.startswith("fast W=4: 1.54x") and "same tokens in 100 %" in line
