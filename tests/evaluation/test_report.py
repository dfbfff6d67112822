import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from bench_runs import ARMS, hand_runs
from PIL import Image

from csd_pipeline.evaluation import plots
from csd_pipeline.evaluation.machine import machine_facts, machine_line
from csd_pipeline.evaluation.report import MapSheet, html_report
from csd_pipeline.evaluation.summary import summarise

ROWS = summarise(hand_runs(), ARMS)
RECIPE = {
    "model": "embedded <test>",
    "prompts": ["a prompt"],
    "seed": 5,
    "sampling": {"guidance_scale": 2.0, "top_k": 0},
    "machine": machine_facts("cpu"),
}


@pytest.fixture(scope="module")
def page() -> str:
    sheet = MapSheet("fast W=4: a prompt", Image.new("RGB", (8, 8)))
    return html_report(RECIPE, {1: ROWS, 2: ROWS}, [sheet])


def test_every_arm_has_a_line_per_thread_count(page):
    for row in ROWS:
        assert page.count(f"<td>{row.arm}</td>") == 2
    assert "<h2>1 thread</h2>" in page and "<h2>2 threads</h2>" in page


def test_the_page_needs_nothing_beside_it(page):
    assert page.count("<svg") == 3 * 2 + 2 and page.count('src="data:image/png;base64,') == 1
    assert not re.search(r'(src|href)="(?!data:|#)', page.replace("xlink:href", "href"))
    assert "<script" not in page and "<link" not in page


def test_texts_are_escaped_and_the_recipe_is_whole(page):
    assert "embedded &lt;test&gt;" in page and "<test>" not in page
    shown = re.search(r"<pre>(.*?)</pre>", page, re.DOTALL).group(1)
    assert json.loads(shown.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")) == RECIPE
    assert machine_line(RECIPE["machine"]) in page


def test_without_a_judge_there_is_no_plot_of_it():
    rows = [replace(row, subject=None, background=None) for row in ROWS]
    page = html_report(RECIPE, {1: rows}, [])
    assert page.count("<svg") == 2 + 2 and "prompt accuracy</figcaption>" not in page


def test_methods_are_lines_over_ascending_windows():
    rows = [replace(ROWS[2], arm=f"{name} W={window}") for name in ("a", "b c") for window in (16, 4, 8)]
    groups = plots.methods([ROWS[0], *rows])
    assert {name: [row.arm for row in members] for name, members in groups.items()} == {
        name: [f"{name} W={window}" for window in (4, 8, 16)] for name in ("a", "b c")
    }


def test_plots_are_valid_svg_with_every_method():
    for plot in (plots.speed_against_drift, plots.speed_against_subject, plots.acceptance_by_index):
        text = plot(ROWS)
        ElementTree.fromstring(text)
        assert "<!-- fast" in text and "<!-- naive" in text  # matplotlib names the words it draws as shapes
