"""Writes the help pages and English locale entries of the generated nodes: ``python -m comfy_nodes.texts``.

Pages and entries of the other nodes are written by hand, and so is ``locales/zh``, whose words the Chinese pages take.
"""

from __future__ import annotations

import json
from pathlib import Path

from .knobs import Knob
from .registry import Part, parts

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "comfy_nodes" / "web" / "docs"
ENGLISH, CHINESE = (ROOT / "locales" / language / "nodeDefs.json" for language in ("en", "zh"))
_OUTPUTS = {"drafters": "drafter", "relaxations": "relaxation", "filters": "filter"}
_HEADS = {
    "en": (
        "Input",
        "Default",
        "Allowed",
        "Meaning",
        "Output: `{}`, for the sampler.",
        "Source: {}",
        "yes / no",
        "text",
    ),
    "zh": ("输入", "默认值", "允许范围", "说明", "输出：`{}`，连接到采样器。", "来源：{}", "是 / 否", "文本"),
}


def main() -> None:
    """Write every page and the English entries."""
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    entries = {**read(ENGLISH), **{part.node_id: english(part) for part in parts()}}
    ENGLISH.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def pages() -> dict[Path, str]:
    """Text of the English and the Chinese help page of every generated node."""
    chinese, written = read(CHINESE), {}
    for part in parts():
        entry = english(part)
        written[DOCS / f"{part.node_id}.md"] = page(part, entry, "en")
        written[DOCS / part.node_id / "zh.md"] = page(part, merged(entry, chinese.get(part.node_id, {})), "zh")
    return written


def page(part: Part, entry: dict, language: str) -> str:
    """Help page of a node in Markdown, with the words of a locale entry."""
    name, default, allowed, meaning, output, source, flag, text = _HEADS[language]
    lines = [f"# {entry['display_name']}", "", entry["description"], ""]
    if part.knobs:
        lines += [f"| {name} | {default} | {allowed} | {meaning} |", "|---|---|---|---|"]
        meanings = {knob: words["tooltip"].replace("|", "\\|") for knob, words in entry["inputs"].items()}
        lines += [
            f"| `{knob.name}` | {_shown(knob.default)} | {_allowed(knob, flag, text)} | {meanings[knob.name]} |"
            for knob in part.knobs
        ]
        lines.append("")
    lines += [output.format(_OUTPUTS[part.kind]), "", source.format(part.source), ""]
    return "\n".join(lines)


def english(part: Part) -> dict:
    """Locale entry of a generated node."""
    output = _OUTPUTS[part.kind]
    return {
        "display_name": part.title,
        "description": part.summary,
        "inputs": {knob.name: {"name": knob.name, "tooltip": knob.tooltip} for knob in part.knobs},
        "outputs": {"0": {"name": output, "tooltip": f"For the {output} socket of the sampler."}},
    }


def merged(entry: dict, translation: dict) -> dict:
    """``entry`` with what the translation has; the rest stays English."""
    result = dict(entry)
    for key, value in translation.items():
        result[key] = merged(entry.get(key, {}), value) if isinstance(value, dict) else value
    return result


def read(file: Path) -> dict:
    """A locale file; empty when there is none yet."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _allowed(knob: Knob, flag: str, text: str) -> str:
    if knob.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in knob.choices)
    if knob.kind in ("float", "int"):
        return f"{knob.low:g} … {knob.high:g}"
    return flag if knob.kind == "bool" else text


def _shown(value) -> str:
    return f"`{value}`" if value != "" else ""


if __name__ == "__main__":
    main()
