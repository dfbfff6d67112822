"""The pack on the real page, in both renderers; what is seen is kept as screenshots."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image
from server import NEWEST, REPOSITORY

TEMPLATES = sorted(path.stem for path in (REPOSITORY / "workflows").glob("*.json"))
FIRST = "1-first-picture"
PASSES = "() => [...document.querySelectorAll('canvas.csd-live-plot')].map((c) => Number(c.dataset.passes ?? 0))"
SHOWN = "() => Object.values(window.app.nodeOutputs).flatMap((o) => o.images ?? []).length"
pytestmark = pytest.mark.parametrize("page_server", [NEWEST], ids=["0.30.0"], indirect=True, scope="session")


def pixels(picture: bytes) -> bytes:
    return Image.open(io.BytesIO(picture)).convert("RGB").tobytes()


def plots(editor) -> list[int]:
    """Passes drawn by every live plot on the page."""
    return editor.script(PASSES)


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
    samplers = sum(node["type"] == "CSDSampler" for node in editor.graph()["nodes"])
    passes = plots(editor)
    assert len(passes) == samplers
    assert min(passes) > 0


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_opens_runs_and_shows_picture_and_plot(editor, request, name):
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
    before = [node.get("widgets_values") for node in editor.graph()["nodes"] if node["type"].startswith("CSD")]
    editor.run()
    after = [node.get("widgets_values") for node in editor.graph()["nodes"] if node["type"].startswith("CSD")]
    assert after == before


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
    editor.drop("old.json", (Path(__file__).parent / "old_janus.json").read_bytes())
    editor.page.wait_for_timeout(1500)
    editor.screenshot(f"janus-{request.node.callspec.id}")
    replace = editor.page.get_by_role("button", name="Replace")
    if replace.count():
        replace.first.click()
        editor.page.wait_for_timeout(1500)
    editor.screenshot(f"janus-replaced-{request.node.callspec.id}")
    assert editor.missing_nodes() == []
    types = {node["type"] for node in editor.graph()["nodes"]}
    assert not any(kind.startswith("Janus") for kind in types)
    outputs = editor.run()
    assert sum(len(output.get("images", ())) for output in outputs.values()) == 2
