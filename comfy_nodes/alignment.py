"""One node per registered alignment filter, and the one that combines two."""

from __future__ import annotations

from comfy_api.latest import io

from .part_nodes import part_node
from .registry import parts_of
from .sockets import FilterSocket


class FilterCombine(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDFilterCombine",
            display_name="Filter: combine",
            category="CSD/filters",
            description="Both filters at once: a position is relaxed only as far as the stricter of them allows.",
            search_aliases=["CSD", "and", "merge filters"],
            inputs=[
                FilterSocket.Input("filter_a", tooltip="The first filter; may itself be a combination."),
                FilterSocket.Input("filter_b", tooltip="The second filter."),
            ],
            outputs=[FilterSocket.Output(display_name="filter", tooltip="For the filter socket of the sampler.")],
        )

    @classmethod
    def execute(cls, filter_a, filter_b) -> io.NodeOutput:
        return io.NodeOutput(filter_a & filter_b)


NODES = [*(part_node(part, "CSD/filters", FilterSocket, "filter") for part in parts_of("filters")), FilterCombine]
