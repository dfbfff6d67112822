"""The workflows of the template browser, as data: which nodes, in which row and column, with which widgets and links.

``write_workflows.py`` builds them in the real editor. A link is "name.output": the node it comes from and the output's
position or name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from csd_pipeline.relaxation import RELAXATIONS


@dataclass
class Node:
    """A node of a template: its type, place, widget values and where its inputs come from.

    Nodes of one row and column stand one below the other; a row starts below all nodes of the row before.
    """

    type: str
    column: int
    widgets: dict = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    title: str | None = None
    size: tuple[int, int] | None = None
    row: int = 0


@dataclass
class Template:
    """``drawn_by_embedded``: False when the pictures of a run here are not what the model named in it draws."""

    note: str
    nodes: dict[str, Node]
    drawn_by_embedded: bool = True


PICTURE = (260, 330)
SAMPLER = (340, 740)  # room for the picture that grows below the plot


def note(text: str, height: int = 260) -> Node:
    return Node("MarkdownNote", 0, {"": text}, size=(330, height))


def start(model: str = "embedded", prompt: str = "red apple on white") -> dict[str, Node]:
    return {
        "target": Node("CSDLoadTarget", 0, {"model": model}, size=(330, 100)),
        "prompt": Node("CSDPrompt", 0, {"positive": prompt}, size=(330, 180)),
    }


def arm(
    name: str, title: str, seed: int, parts: dict[str, str], prefix: str, row: int = 0, report: bool = True
) -> dict:
    """Sampler, decoder and saved picture of one method, and its report, side by side."""
    column = 2
    links = {"target": "target.0", "prompt": "prompt.0"} | parts
    nodes = {
        f"{name}-sampler": Node(
            "CSDSampler", column, {"seed": seed, SEED_CONTROL: "fixed"}, links, title, SAMPLER, row
        ),
        f"{name}-decode": Node("CSDDecode", column + 1, links={"tokens": f"{name}-sampler.tokens"}, row=row),
        f"{name}-save": Node(
            "CSDSaveImage",
            column + 1,
            {"filename_prefix": f"csd/{prefix}-{name}"},
            {"images": f"{name}-decode.0", "trace": f"{name}-sampler.trace"},
            size=PICTURE,
            row=row,
        ),
    }
    if report:
        nodes[f"{name}-trace"] = Node(
            "CSDTrace", column + 2, links={"trace": f"{name}-sampler.trace", "image": f"{name}-decode.0"}, row=row
        )
        nodes[f"{name}-report"] = Node(
            "PreviewAny",
            column + 2,
            links={"source": f"{name}-trace.report"},
            title=f"{title}: numbers",
            size=(330, 260),
            row=row,
        )
    return nodes


SEED_CONTROL = "control_after_generate"

FIRST = """## First picture

Press **Run**. The model is part of the pack: nothing is downloaded, and a CPU is enough.

It draws one of 56 subjects on one of 26 backgrounds, written like *panda on grass* or *rocket at starry night*.

Nothing is connected to *drafter*, *relaxation* and *filter*: the sampler then decodes **exactly**, with several tokens
per forward of the model. The curve on the sampler shows how many."""

EXACT = """## Exact against plain

The same seed twice: one token per forward (window 1), and a window of 32 with the *gumbel* redraw, which returns **the
very same picture**.

Compare the two pictures, then forwards and seconds in the two reports."""

MAPS = """## CSD with maps

The entropy rule (CSD, arXiv 2606.27829) accepts more drafts where the model is uncertain. Two filters keep it in
check: total variation and a drift budget; the stricter one wins at every position.

Maps: where the model was uncertain, which drafts were accepted, and where drift was spent. The plot shows tokens per
forward."""

SWEEP = """## Drift budget

One picture, four budgets. A budget bounds how far the law of every token may be from the model's own (total
variation): 0 is exact, 1 is no bound.

Read drift and forwards in the four reports: that is the price and what it buys."""

RULES = """## Rules side by side

The same prompt, seed, drafter and drift budget, another acceptance rule in each column: all there are. The plots tell
tokens per pass and drift; the pictures stand below them.

*exact* and *block* keep the model's own law. *phrase* stands at `max_len` 1 and is exact too: longer phrases need a
library, which `csd phrases` collects for a model."""

JANUS = """## Janus-Pro-7B

Put the checkpoint into `models/csd/Janus-Pro-7B`: the transformers layout (`deepseek-community/Janus-Pro-7B`), with
`config.json`, the tokenizer files, every `*.safetensors` shard and its index, about 15 GB in bfloat16. Then press *R*
to refresh the list.

384 x 384 pixels, 576 tokens. Guidance, temperature, window, rule and filter are those published for CSD on this model
(arXiv 2606.27829, quality setting). Disconnect *relaxation* and *filter* to decode exactly."""

DRAFTER = {"window": 32, "redraw": "coupled", "init": "mean"}


def sweep() -> dict[str, Node]:
    nodes = {
        "drafter": Node("CSDJacobiDrafter", 1, DRAFTER),
        "rule": Node("CSDRelaxationEntropy", 1),
    }
    budgets = {"budget-0": 0.0, "budget-02": 0.02, "budget-10": 0.1, "budget-100": 1.0}
    for row, (name, budget) in enumerate(budgets.items()):
        nodes[f"{name}-filter"] = Node(
            "CSDFilterBudget", 1, {"budget": budget}, title=f"Drift budget {budget}", row=row
        )
        parts = {"drafter": "drafter.0", "relaxation": "rule.0", "filter": f"{name}-filter.0"}
        nodes |= arm(name, f"Budget {budget}", 11, parts, "sweep", row)
    return nodes


def rules() -> dict[str, Node]:
    """Every rule in a column of its own, from the rule down to the picture."""
    nodes = {
        "drafter": Node("CSDJacobiDrafter", 1, DRAFTER),
        "budget": Node("CSDFilterBudget", 1, {"budget": 0.1}),
    }
    widgets = {"phrase": {"max_len": 1}}  # without a library
    for column, name in enumerate(RELAXATIONS, start=2):
        node = Node(f"CSDRelaxation{name.capitalize()}", column, widgets.get(name, {}), size=(300, 230))
        parts = {"drafter": "drafter.0", "relaxation": f"{name}-rule.0", "filter": "budget.0"}
        drawn = arm(name, name.capitalize(), 7, parts, "rules", report=False)
        for part in drawn.values():
            part.column = column
        nodes |= {f"{name}-rule": node} | drawn
    return nodes


def maps() -> dict[str, Node]:
    parts = {"drafter": "drafter.0", "relaxation": "rule.0", "filter": "filter.0"}
    nodes = {
        "drafter": Node("CSDJacobiDrafter", 1, DRAFTER),
        "rule": Node("CSDRelaxationEntropy", 1),
        "tv": Node("CSDFilterTV", 1, {"delta": 0.65}),
        "budget": Node("CSDFilterBudget", 1, {"budget": 0.1}),
        "filter": Node("CSDFilterCombine", 1, links={"filter_a": "tv.0", "filter_b": "budget.0"}),
    }
    nodes |= arm("csd", "CSD", 3, parts, "maps")
    for column, name in ((4, "acceptance"), (5, "entropy"), (5, "drift")):
        nodes[name] = Node(
            "PreviewImage",
            column,
            links={"images": f"csd-trace.{name}"},
            title=f"{name.capitalize()} map",
            size=PICTURE,
        )
    nodes["plot"] = Node(
        "PreviewImage", 6, links={"images": "csd-trace.plot"}, title="Tokens per forward", size=(420, 340)
    )
    return nodes


def exact_and_plain() -> dict[str, Node]:
    nodes = {}
    arms = (("plain", 1, "Plain decoding"), ("exact", 32, "Exact, several tokens per forward"))
    for row, (name, window, title) in enumerate(arms):
        widgets = {"window": window, "redraw": "gumbel", "init": "mean"}
        nodes[f"{name}-drafter"] = Node("CSDJacobiDrafter", 1, widgets, title=f"Window {window}", row=row)
        nodes |= arm(name, title, 3, {"drafter": f"{name}-drafter.0"}, "exact", row)
    return nodes


def janus() -> dict[str, Node]:
    parts = {"drafter": "drafter.0", "relaxation": "rule.0", "filter": "tv.0"}
    nodes = {
        "drafter": Node("CSDJacobiDrafter", 1, {"window": 16, "redraw": "fresh", "init": "uniform"}),
        "rule": Node("CSDRelaxationEntropy", 1, {"lam": 0.5, "support_guard": False, "relax_fresh": True}),
        "tv": Node("CSDFilterTV", 1, {"delta": 0.65}),
    }
    nodes |= arm("janus", "CSD", 1, parts, "janus-pro-7b")
    nodes["janus-sampler"].widgets |= {"guidance": 5.0, "temperature": 1.0}
    return nodes


TEMPLATES = {
    "1-first-picture": Template(
        FIRST, {"note": note(FIRST)} | start() | arm("picture", "Exact", 1, {}, "first", report=False)
    ),
    "2-exact-and-plain": Template(EXACT, {"note": note(EXACT)} | start(prompt="panda on grass") | exact_and_plain()),
    "3-csd-with-maps": Template(MAPS, {"note": note(MAPS)} | start(prompt="panda on grass") | maps()),
    "4-drift-budget": Template(SWEEP, {"note": note(SWEEP)} | start(prompt="rocket at starry night") | sweep()),
    "5-rules-side-by-side": Template(RULES, {"note": note(RULES, 330)} | start(prompt="ghost at sunset") | rules()),
    "6-janus-pro-7b": Template(
        JANUS,
        {"note": note(JANUS, 330)}
        | start("Janus-Pro-7B", "a corgi in a teacup on a wooden table, soft morning light")
        | janus(),
        drawn_by_embedded=False,
    ),
}
