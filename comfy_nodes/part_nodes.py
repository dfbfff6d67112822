"""A node from the description of a registered part."""

from __future__ import annotations

from comfy_api.latest import io

from .knobs import Knob
from .registry import Part

_ALIASES = ["CSD", "speculative decoding", "Jacobi"]
# Inputs a node got after workflows had been saved with it: optional, so that those without them still run.
_LATER = {
    "CSDJacobiDrafter": ("guide", "growth_weight", "growth_decay", "growth_share", "record", "tree_depth", "tree_width")
}


def part_node(part: Part, category: str, socket, output: str) -> type[io.ComfyNode]:
    """The node class that builds ``part`` from its widgets.

    Args:
        category: of the node menu.
        socket: type of its output.
        output: name of its output.
    """

    class PartNode(io.ComfyNode):
        @classmethod
        def define_schema(cls) -> io.Schema:
            return io.Schema(
                node_id=part.node_id,
                display_name=part.title,
                category=category,
                description=part.summary,
                search_aliases=[part.name, part.cls.__name__, output, *_ALIASES],
                inputs=[widget(knob, knob.name in _LATER.get(part.node_id, ())) for knob in part.knobs],
                outputs=[socket.Output(display_name=output, tooltip=f"For the {output} socket of the sampler.")],
            )

        @classmethod
        def execute(cls, **values) -> io.NodeOutput:
            return io.NodeOutput(part.build(**values))

    PartNode.__name__ = PartNode.__qualname__ = part.node_id
    return PartNode


def widget(knob: Knob, optional: bool = False):
    """The input of a knob; one that is ``optional`` may be missing, which leaves the knob at its default."""
    shared = {"default": knob.default, "tooltip": knob.tooltip, "optional": optional}
    if knob.kind == "choice":
        return io.Combo.Input(knob.name, options=list(knob.choices), **shared)
    if knob.kind == "bool":
        return io.Boolean.Input(knob.name, **shared)
    if knob.kind == "text":
        return io.String.Input(knob.name, **shared)
    limits = {"min": knob.low, "max": knob.high, "step": 1 if knob.kind == "int" else 0.01}
    if knob.kind == "int":
        return io.Int.Input(knob.name, **shared, **limits)
    return io.Float.Input(knob.name, **shared, **limits, round=0.0001)
