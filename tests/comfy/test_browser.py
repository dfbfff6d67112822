"""The pack on the page of the newest front-end, in both renderers; what is seen is kept as screenshots."""

import io
import json
from pathlib import Path

import pytest
from models import MANY_SIZES, SIZES
from PIL import Image
from server import NEWEST_FRONTEND, REPOSITORY

TEMPLATES = sorted(path.stem for path in (REPOSITORY / "workflows").glob("*.json"))
FIRST = "1-first-picture"
PASSES = "() => [...document.querySelectorAll('canvas.csd-live-plot')].map((c) => Number(c.dataset.passes ?? 0))"
DRAWN = """(id) => {
    const plot = window.app.graph.getNodeById(id).widgets.find((w) => w.name === 'live_plot').element;
    const flat = plot.getBoundingClientRect().height <= 100; // not stretched over the room of the picture
    return Number(plot.dataset.passes) > 0 && plot.checkVisibility() && flat;
}"""
SHOWN = "() => Object.values(window.app.nodeOutputs).flatMap((o) => o.images ?? []).length"
pytestmark = pytest.mark.parametrize("page_server", [NEWEST_FRONTEND], ids=["1.58.1"], indirect=True, scope="session")
# the page alone: together with another argument it would be loaded anew for every test
in_canvas = pytest.mark.parametrize("page", [False], ids=["canvas"], indirect=True)
in_nodes_2 = pytest.mark.parametrize("page", [True], ids=["nodes-2"], indirect=True)


def pixels(picture: bytes) -> bytes:
    return Image.open(io.BytesIO(picture)).convert("RGB").tobytes()


def plots(editor) -> list[int]:
    """Passes drawn by every live plot on the page."""
    return editor.script(PASSES)


def look_at(editor, node: int) -> None:
    """Pages leave out what lies outside the view or is too small to read."""
    editor.script(
        "(id) => { const { canvas, graph } = window.app; canvas.ds.scale = 1;"
        " canvas.centerOnNode(graph.getNodeById(id)); canvas.setDirty(true, true); }",
        node,
    )


def fit(editor) -> None:
    editor.script("() => { window.app.extensionManager.command.execute('Comfy.Canvas.FitView'); }")
    editor.page.wait_for_timeout(700)


def without_meta(prompt: dict) -> dict:
    """A graph in API format without what pages note about its nodes (newer ones add the pack's name)."""
    return {number: {key: value for key, value in node.items() if key != "_meta"} for number, node in prompt.items()}


def check_template(editor, name: str, screenshot: str) -> None:
    """It opens without a missing node, as its API twin says, runs, and shows every picture and plot."""
    editor.server.free()
    editor.open_template(name)
    assert editor.missing_nodes() == []
    twin = json.loads((REPOSITORY / "workflows" / "api" / f"{name}.json").read_text())
    assert without_meta(editor.prompt()) == without_meta(twin)
    outputs = editor.run()
    saved = [entry for output in outputs.values() for entry in output.get("images", ())]
    assert saved
    editor.page.wait_for_function(f"() => ({SHOWN})() >= {len(saved)}", timeout=60_000)  # the page hears of them later
    fit(editor)
    editor.screenshot(screenshot)
    samplers = [node["id"] for node in editor.graph()["nodes"] if node["type"] == "CSDSampler"]
    assert samplers
    for sampler in samplers:
        look_at(editor, sampler)
        editor.wait(DRAWN, sampler)
    editor.screenshot(f"{screenshot}-near")


@pytest.mark.parametrize("name", TEMPLATES)
@in_nodes_2
def test_a_template_opens_runs_and_shows_picture_and_plot(editor, request, name):
    check_template(editor, name, request.node.callspec.id)


@pytest.mark.parametrize("name", (FIRST, "3-csd-with-maps"))
@in_canvas
def test_a_template_shows_them_in_the_canvas_renderer_too(editor, request, name):
    check_template(editor, name, request.node.callspec.id)


def test_dropping_a_saved_picture_restores_its_graph(editor):
    editor.server.free()
    editor.open_template(FIRST)
    editor.set_widget("CSDPrompt", "positive", "ghost at sunset")
    before = editor.prompt()
    (entry,) = (entry for output in editor.run().values() for entry in output.get("images", ()))
    editor.drop("picture.png", editor.server.picture(entry))
    assert editor.prompt() == before
    assert editor.missing_nodes() == []


def test_running_leaves_the_widgets_as_they_were(editor):
    """The live plot is a widget of its own: it must never be saved among the values."""
    editor.server.free()
    editor.open_template(FIRST)
    before = widget_values(editor)
    editor.run()
    assert widget_values(editor) == before


def test_cancel_stops_a_run_without_an_error_window(editor, request):
    editor.server.free()
    editor.open_template(FIRST)
    editor.set_widget("CSDSampler", "images", 16)
    before = set(editor.server.get("/history"))
    editor.queue()
    editor.wait(f"() => ({PASSES})().some((passes) => passes > 0)")
    editor.cancel()
    entry = editor.server.wait_for_history(before, pump=lambda: editor.page.wait_for_timeout(100))
    kinds = [kind for kind, _ in entry["status"]["messages"]]
    assert "execution_interrupted" in kinds
    editor.page.wait_for_timeout(700)
    editor.screenshot(f"cancel-{request.node.callspec.id}")
    assert editor.page.get_by_text("InterruptProcessingException").count() == 0
    editor.set_widget("CSDSampler", "images", 1)
    assert editor.run()


def test_the_live_plot_can_be_switched_off(editor):
    editor.server.free()
    editor.open_template(FIRST)
    (setting,) = editor.script(
        "() => Object.keys(window.app.ui.settings.settingsLookup).filter((s) => /^CSD.*plot/i.test(s))"
    )
    try:
        editor.script("(s) => window.app.extensionManager.setting.set(s, false)", setting)
        assert editor.run()
        assert not any(plots(editor))
    finally:
        editor.script("(s) => window.app.extensionManager.setting.set(s, true)", setting)


def test_the_help_page_of_the_sampler_shows(editor, request):
    editor.open_template(FIRST)
    editor.script(
        "() => { const n = window.app.graph.nodes.find((n) => n.type === 'CSDSampler');"
        " window.app.canvas.selectNode(n); }"
    )
    editor.page.locator('[data-testid="info-button"]:visible').first.click()
    page = (REPOSITORY / "comfy_nodes" / "web" / "docs" / "CSDSampler.md").read_text()
    sentence = next(line for line in page.splitlines() if line and line[0].isalpha())[:40]
    editor.page.get_by_text(sentence).first.wait_for()
    editor.screenshot(f"help-{request.node.callspec.id}")


def test_a_refused_value_is_shown_on_its_node(editor, request):
    editor.open_template(FIRST)
    editor.set_widget("CSDLoadTarget", "model", "no-such-model")
    editor.queue()
    editor.wait("() => window.app.lastNodeErrors && Object.keys(window.app.lastNodeErrors).length > 0")
    editor.page.wait_for_timeout(700)
    editor.screenshot(f"refused-{request.node.callspec.id}")
    errors = editor.script("() => Object.values(window.app.lastNodeErrors).map((e) => e.class_type)")
    assert errors == ["CSDLoadTarget"]


def test_a_workflow_of_the_janus_pack_opens_on_our_nodes(editor, request):
    """At once, without a click; its values and links are kept, and what is lost is said."""
    editor.server.free()
    editor.drop("old.json", (Path(__file__).parent / "old_janus.json").read_bytes())
    editor.page.get_by_text("Not kept").first.wait_for()
    assert editor.missing_nodes() == []
    by_type = {node["class_type"]: node["inputs"] for node in editor.prompt().values()}
    assert by_type.keys() == {"CSDLoadTarget", "CSDQuickGenerate", "SaveImage"}
    assert by_type["CSDLoadTarget"] == {"model": "Janus-Pro-7B", "dtype": "auto"}
    kept = {"prompt": "a lemon on blue", "seed": 666, "images": 2, "guidance": 2.0, "temperature": 0.6}
    assert by_type["CSDQuickGenerate"].items() >= (kept | {"preset": "exact", "target": ["1", 0]}).items()
    outputs = editor.run()
    editor.screenshot(f"janus-{request.node.callspec.id}")
    assert sum(len(output.get("images", ())) for output in outputs.values()) == 2


def test_a_janus_workflow_opens_again_after_it_was_saved_with_our_nodes(editor):
    editor.drop("old.json", (Path(__file__).parent / "old_janus.json").read_bytes())
    before, graph = editor.prompt(), editor.graph()
    editor.drop("new.json", json.dumps(graph).encode())
    assert editor.prompt() == before


def test_a_janus_workflow_in_a_subgraph_opens_too(editor):
    old = json.loads((Path(__file__).parent / "old_janus.json").read_text())
    editor.drop("old.json", json.dumps(in_a_subgraph(old)).encode())
    kinds = sorted(node["class_type"] for node in editor.prompt().values())
    assert kinds == ["CSDLoadTarget", "CSDQuickGenerate", "SaveImage"]


def in_a_subgraph(graph: dict) -> dict:
    """A workflow of one node, a subgraph that holds the nodes of ``graph``; its links are objects there."""
    fields = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    links = [dict(zip(fields, link, strict=True)) for link in graph["links"]]
    name, box = "5f0f6c52-6f0e-4d33-9a2b-0d3f6c5a7b10", {"bounding": [0, 0, 120, 60]}
    state = {"lastGroupId": 0, "lastNodeId": 9, "lastLinkId": 9, "lastRerouteId": 0}
    inner = {"id": name, "version": 1, "revision": 0, "name": "old", "state": state, "config": {}, "extra": {}}
    inner |= {"inputNode": box | {"id": -10}, "outputNode": box | {"id": -20}, "inputs": [], "outputs": []}
    inner |= {"widgets": [], "groups": [], "nodes": graph["nodes"], "links": links}
    host = {"id": 5, "type": name, "pos": [0, 0], "size": [200, 60], "flags": {}, "order": 0, "mode": 0}
    host |= {"inputs": [], "outputs": [], "properties": {}, "widgets_values": []}
    return graph | {"nodes": [host], "links": [], "definitions": {"subgraphs": [inner]}}


SIZE_LIST = """() => {
    const list = window.app.graph.nodes.find((n) => n.type === 'CSDSampler').widgets.find((w) => w.name === 'size');
    return [list.value, list.options.values];
}"""


def wait_for_sizes(editor, shown: str, offered: list[str]) -> None:
    editor.wait(
        f"(wanted) => JSON.stringify(({SIZE_LIST})()) === wanted", json.dumps([shown, offered], separators=(",", ":"))
    )


def test_the_list_of_sizes_follows_the_loaded_target(editor, request):
    """It is filled from the config of the chosen model, sets width and height, and is itself no value."""
    of_embedded, of_many = ["128 x 128"], [f"{width} x {height}" for width, height in SIZES]
    editor.server.free()
    editor.open_template(FIRST)
    (sampler,) = (key for key, node in editor.prompt().items() if node["class_type"] == "CSDSampler")
    wait_for_sizes(editor, "128 x 128", of_embedded)
    before = widget_values(editor)
    editor.set_widget("CSDLoadTarget", "model", MANY_SIZES)
    wait_for_sizes(editor, of_many[0], of_many)
    editor.set_widget("CSDSampler", "size", "64 x 128")
    editor.screenshot(f"sizes-{request.node.callspec.id}")
    inputs = editor.prompt()[sampler]["inputs"]
    assert (inputs["width"], inputs["height"], "size" in inputs) == (64, 128, False)
    assert len(widget_values(editor)["CSDSampler"]) == len(before["CSDSampler"])
    editor.set_widget("CSDPrompt", "positive", "red cat")
    (entry,) = (entry for output in editor.run().values() for entry in output.get("images", ()))
    assert Image.open(io.BytesIO(editor.server.picture(entry))).size == (64, 128)
    editor.set_widget("CSDLoadTarget", "model", "embedded")
    wait_for_sizes(editor, "64 x 128: not of this model", of_embedded)  # said, and what was saved is kept
    editor.set_widget("CSDSampler", "size", "128 x 128")
    editor.set_widget("CSDPrompt", "positive", "red apple on white")
    assert widget_values(editor) == before


def widget_values(editor) -> dict[str, list]:
    """What a workflow saves of our nodes' widgets."""
    return {n["type"]: n.get("widgets_values") for n in editor.graph()["nodes"] if n["type"].startswith("CSD")}
