"""ComfyUI's page in a real browser: what a person would do, as calls."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright
from server import PACK, RUN_LIMIT, ComfyServer

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-gpu-rasterization",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # the page reaches its server and nothing else
]
READY = "() => window.app?.graph && window.LiteGraph?.registered_node_types?.['CSDSampler']"
DROP = """([name, type, data]) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, { type }));
    const canvas = document.querySelector('#graph-canvas');
    const { x, y } = canvas.getBoundingClientRect();
    const at = { dataTransfer: transfer, bubbles: true, cancelable: true, clientX: x + 400, clientY: y + 300 };
    canvas.dispatchEvent(new DragEvent('dragover', at));
    canvas.dispatchEvent(new DragEvent('drop', at));
}"""


def launch(playwright: Playwright) -> Browser:
    """Raises RuntimeError without chromium: these tests are never skipped."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("no chromium; run .ci/comfy, which installs it")
    return playwright.chromium.launch(executable_path=chromium, args=FLAGS)


class Editor:
    """One page of one server. ``errors`` are the uncaught exceptions of the page.

    Args:
        browser: from :func:`launch`.
        server: whose page it is.
        vue: True for the "Nodes 2.0" renderer, False for the canvas one.
        artefacts: folder for screenshots.
    """

    def __init__(self, browser: Browser, server: ComfyServer, vue: bool, artefacts: Path):
        self.server, self.artefacts, self.errors = server, artefacts, []
        for name, value in {"Comfy.VueNodes.Enabled": vue, "Comfy.TutorialCompleted": True}.items():
            server.set_setting(name, value)
        self.page: Page = browser.new_page(viewport={"width": 1600, "height": 1000}, reduced_motion="reduce")
        self.page.set_default_timeout(RUN_LIMIT * 1000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(server.url)
        self.page.wait_for_function(READY)

    def close(self) -> None:
        self.page.close()

    def script(self, code: str, argument=None):
        return self.page.evaluate(code, argument)

    def screenshot(self, name: str) -> Path:
        path = self.artefacts / f"{name}.png"
        self.page.screenshot(path=path)
        return path

    # ---- graphs ----

    def clear(self) -> None:
        self.script("() => { window.app.graph.clear(); }")

    def drop(self, name: str, content: bytes) -> None:
        """Drop a file on the canvas; returns when the graph it carries is there."""
        self.clear()
        kind = "image/png" if name.endswith(".png") else "application/json"
        self.script(DROP, [name, kind, base64.b64encode(content).decode()])
        self.page.wait_for_function("() => window.app.graph.nodes.length > 0")

    def open_template(self, name: str) -> None:
        """Open one of the pack's workflows from the template browser, by hand."""
        self.clear()
        self.script("() => { window.app.extensionManager.command.execute('Comfy.BrowseTemplates'); }")
        dialog = self.page.get_by_role("dialog")
        # events, not mouse movements: thumbnails that still load move the cards about
        dialog.get_by_text(PACK, exact=True).first.dispatch_event("click")
        dialog.locator(f"[data-testid='template-workflow-{name}']").dispatch_event("click")
        self.page.wait_for_function("() => window.app.graph.nodes.length > 0")
        self.page.wait_for_selector("[role=dialog]", state="detached")

    def graph(self) -> dict:
        return self.script("() => window.app.graph.serialize()")

    def prompt(self) -> dict:
        """API format of what is on the canvas."""
        return self.script("async () => (await window.app.graphToPrompt()).output")

    def missing_nodes(self) -> list[str]:
        """Types on the canvas that the server does not know."""
        return self.script(
            "() => window.app.graph.nodes.map((n) => n.type).filter((t) => !window.LiteGraph.registered_node_types[t]"
            " && !['MarkdownNote', 'Note', 'Reroute'].includes(t))"
        )

    def set_widget(self, node_type: str, name: str, value) -> None:
        """Set a widget of every node of that type."""
        self.script(
            "([type, name, value]) => { for (const n of window.app.graph.nodes.filter((n) => n.type === type)) {"
            " const w = n.widgets.find((w) => w.name === name); w.value = value; w.callback?.(value); } }",
            [node_type, name, value],
        )

    # ---- running ----

    def queue(self) -> None:
        self.page.locator('[data-testid="queue-button"]:visible').first.click()

    def run(self) -> dict:
        """Press Run and wait for the end; the outputs of /history. Raises RuntimeError when it failed."""
        before = set(self.server.get("/history"))
        self.queue()
        entry = self.server.wait_for_history(before, pump=lambda: self.page.wait_for_timeout(200))
        if entry["status"]["status_str"] != "success":
            raise RuntimeError(json.dumps(entry["status"])[:3000])
        self.page.wait_for_timeout(800)  # the pictures are still on their way to the page
        return entry["outputs"]

    def cancel(self) -> None:
        self.page.locator('button[aria-label="Cancel current run"]:visible').first.click()

    def wait(self, code: str, argument=None) -> None:
        self.page.wait_for_function(code, arg=argument)
