"""The report of a comparison: one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass, field
from html import escape

from PIL import Image

from . import plots
from .machine import machine_line
from .summary import EFFICIENCY_WANTED, Row
from .tables import COLUMNS, cells, naive_lines

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1500px; padding: 0 1rem; color: #1a1a1f; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } .plots figure { margin: 0; flex: 1 1 600px; }
.plots svg, .maps { max-width: 100%; height: auto; } figcaption, .faint { color: #66666e; font-size: 13px; }
pre { white-space: pre-wrap; font-size: 12px; }
"""


@dataclass
class MapSheet:
    """Maps of one image, with the words that say which."""

    caption: str
    picture: Image.Image = field(repr=False)


def html_report(recipe: dict, tables: dict[int, list[Row]], sheets: list[MapSheet]) -> str:
    """The whole page.

    Args:
        recipe: what ran, as written to JSON.
        tables: rows per thread count, at least one.
        sheets: maps, drawn by :func:`csd_pipeline.evaluation.maps.sheet`.
    """
    first = next(iter(tables.values()))
    sampling = ", ".join(f"{name} {value:g}" for name, value in recipe["sampling"].items())
    parts = [
        "<h1>Decoding methods side by side</h1>",
        f"<p>{escape(recipe['model'])}, {len(recipe['prompts'])} prompts, seed {recipe['seed']}, {escape(sampling)}. "
        f"{escape(machine_line(recipe['machine']))}. Arms ran interleaved in one process, on the same prompts and "
        "seeds; every ratio compares images of the same prompt and run.</p>",
        *(part for threads, rows in tables.items() for part in _thread_section(threads, rows)),
        "<h2>Acceptance</h2>",
        _figures(
            ("By index of the draft in the window", plots.acceptance_by_index(first)),
            ("Accepted drafts per pass", plots.accepted_histogram(first)),
        ),
        "<h2>Maps</h2>",
        *(_maps(sheet) for sheet in sheets),
        "<h2>Columns</h2><dl>",
        *(f"<dt><b>{escape(name)}</b></dt><dd>{escape(meaning)}</dd>" for name, meaning in COLUMNS),
        "</dl><h2>Recipe</h2>",
        f"<details><summary>Everything needed to run this again</summary><pre>{escape(json.dumps(recipe, indent=1))}"
        "</pre></details>",
    ]
    head = f'<meta charset="utf-8"><title>csd bench: {escape(recipe["model"])}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _thread_section(threads: int, rows: list[Row]) -> list[str]:
    judged = all(row.subject is not None for row in rows)
    quality = ("Speed against prompt accuracy", plots.speed_against_subject(rows)) if judged else None
    figures = [
        ("Speed against drift; numbers are windows", plots.speed_against_drift(rows)),
        quality,
        ("Speed against likelihood of the pictures", plots.speed_against_likelihood(rows)),
    ]
    return [
        f"<h2>{threads} thread{'s' if threads > 1 else ''}</h2>",
        _table(rows),
        f'<p class="faint">! efficiency below {EFFICIENCY_WANTED}. {escape(". ".join(naive_lines(rows)))}</p>',
        _figures(*(figure for figure in figures if figure)),
    ]


def _table(rows: list[Row]) -> str:
    head = "".join(f'<th title="{escape(meaning)}">{escape(name)}</th>' for name, meaning in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _figures(*figures: tuple[str, str]) -> str:
    drawn = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for caption, svg in figures)
    return f'<div class="plots">{"".join(drawn)}</div>'


def _maps(sheet: MapSheet) -> str:
    buffer = io.BytesIO()
    sheet.picture.save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<p>{escape(sheet.caption)}</p><img class="maps" alt="maps" src="data:image/png;base64,{data}">'
