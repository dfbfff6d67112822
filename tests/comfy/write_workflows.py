"""Write workflows/*.json, workflows/api/*.json and thumbnails: the templates, built in the real editor and run.

    CSD_COMFY_HOME=DIR DIR/venv/bin/python tests/comfy/write_workflows.py [name ...]

Names are those of ``templates.TEMPLATES``; all of them without a name.
"""

from __future__ import annotations

import io
import json
import math
import sys
import tempfile
from pathlib import Path

import tomllib
from editor import Editor, launch
from models import lay_out_models
from PIL import Image, ImageOps
from playwright.sync_api import sync_playwright
from server import REPOSITORY, start
from templates import TEMPLATES, Template

WORKFLOWS = REPOSITORY / "workflows"
THUMBNAIL = 480  # pixels, longer side
BUILD = """([nodes, pack]) => {
    const graph = window.app.graph, made = {}, GAP_X = 70, GAP_Y = 90, top = 120;
    graph.clear();
    for (const [name, spec] of nodes) {
        const node = window.LiteGraph.createNode(spec.type);
        if (!node) throw new Error(`the server has no node ${spec.type}`);
        graph.add(node);
        made[name] = node;
        if (spec.title) node.title = spec.title;
        for (const [widget, value] of Object.entries(spec.widgets)) {
            const found = widget === '' ? node.widgets[0] : node.widgets.find((w) => w.name === widget);
            if (!found) throw new Error(`${spec.type} has no widget ${widget}`);
            found.value = value;
        }
        if (spec.type.startsWith('CSD')) Object.assign(node.properties, pack);
    }
    for (const [name, spec] of nodes) {
        for (const [input, from] of Object.entries(spec.links)) {
            const [source, output] = from.split(/\\.(?=[^.]*$)/);
            const slot = /^\\d+$/.test(output) ? Number(output) : made[source].findOutputSlot(output);
            const at = made[name].findInputSlot(input);
            if (slot < 0 || at < 0) throw new Error(`no link ${from} -> ${name}.${input}`);
            if (!made[source].connect(slot, made[name], at)) throw new Error(`refused: ${from} -> ${name}.${input}`);
        }
    }
    const sorted = (key) => [...new Set(nodes.map(([, spec]) => spec[key]))].sort((a, b) => a - b);
    const lefts = new Map();
    let x = 40;
    for (const column of sorted('column')) {
        lefts.set(column, x);
        let width = 0;
        for (const [name, spec] of nodes.filter(([, spec]) => spec.column === column)) {
            const node = made[name], least = node.computeSize(), [w, h] = spec.size ?? [0, 0];
            node.setSize([Math.max(least[0], w, 260), Math.max(least[1], h)]);
            width = Math.max(width, node.size[0]);
        }
        x += width + GAP_X;
    }
    let y = top;
    for (const row of sorted('row')) {
        const bottoms = new Map();
        for (const [name, spec] of nodes.filter(([, spec]) => spec.row === row)) {
            const node = made[name], at = bottoms.get(spec.column) ?? y;
            node.pos = [lefts.get(spec.column), at];
            bottoms.set(spec.column, at + node.size[1] + GAP_Y);
        }
        y = Math.max(...bottoms.values());
    }
    graph.setDirtyCanvas(true, true);
}"""


def build(editor: Editor, template: Template) -> tuple[dict, dict]:
    """UI and API format of a template, as the editor writes them."""
    nodes = [[name, vars(node)] for name, node in template.nodes.items()]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    editor.script(BUILD, [nodes, {"cnr_id": project["name"]}])
    return editor.graph(), editor.prompt()


def thumbnail(pictures: list[bytes], path: Path) -> None:
    """The pictures side by side, four and more in rows."""
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in pictures]
    side = max(max(image.size) for image in images)
    columns = len(images) if len(images) < 4 else math.ceil(math.sqrt(len(images)))
    sheet = Image.new("RGB", (columns * side, -(-len(images) // columns) * side), "white")
    for index, image in enumerate(images):
        place = (index % columns * side, index // columns * side)
        sheet.paste(ImageOps.pad(image, (side, side), Image.Resampling.LANCZOS, color="white"), place)
    scale = THUMBNAIL / max(sheet.size)
    size = (round(sheet.width * scale), round(sheet.height * scale))
    sheet.resize(size, Image.Resampling.LANCZOS).save(path, quality=88)


EXTENT = """() => {
    const boxes = window.app.graph.nodes.map((n) => n.getBounding()), ds = window.app.canvas.ds;
    const left = Math.min(...boxes.map((b) => b[0])), right = Math.max(...boxes.map((b) => b[0] + b[2]));
    const top = Math.min(...boxes.map((b) => b[1])), bottom = Math.max(...boxes.map((b) => b[1] + b[3]));
    const [x, y] = ds.offset;
    return [left + x, top + y, right + x, bottom + y].map((v) => v * ds.scale);
}"""


def graph_picture(editor: Editor, path: Path) -> None:
    """The canvas itself, for a template whose pictures cannot be drawn here."""
    editor.script("() => { window.app.extensionManager.command.execute('Comfy.Canvas.FitView'); }")
    editor.page.wait_for_timeout(1500)
    picture = editor.page.locator("#graph-canvas").screenshot()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    left, top, right, bottom = editor.script(EXTENT)
    image = image.crop((max(left - 8, 0), max(top - 8, 0), min(right + 8, image.width), min(bottom + 8, image.height)))
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    image.save(path, quality=88)


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as base, sync_playwright() as playwright:
        lay_out_models(Path(base))
        server = start(Path(base))
        try:
            editor = Editor(launch(playwright), server, vue=False, artefacts=Path(base))
            (WORKFLOWS / "api").mkdir(parents=True, exist_ok=True)
            for name in names or TEMPLATES:
                write(editor, server, name, TEMPLATES[name])
        finally:
            server.stop()


def write(editor: Editor, server, name: str, template: Template) -> None:
    ui, api = build(editor, template)
    for path, content in ((WORKFLOWS / f"{name}.json", ui), (WORKFLOWS / "api" / f"{name}.json", api)):
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    pictures = server.images(api)
    if template.drawn_by_embedded:
        thumbnail(pictures, WORKFLOWS / f"{name}.jpg")
    else:
        graph_picture(editor, WORKFLOWS / f"{name}.jpg")
    print(f"{name}: {len(template.nodes)} nodes, {len(pictures)} pictures")


if __name__ == "__main__":
    main(sys.argv[1:])
