"""What a run did, as pictures and text."""

from __future__ import annotations

from comfy_api.latest import io, ui

from . import trace_views
from .pictures import to_images, to_pictures
from .sockets import TraceSocket


class Trace(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        maps = {
            "entropy": "Uncertainty of the model at every token (nats).",
            "acceptance": "Probability with which the draft tested there was accepted; grey where none was.",
            "drift": "Total variation spent at every token; nothing in an exact run.",
        }
        return io.Schema(
            node_id="CSDTrace",
            display_name="Trace",
            category="CSD",
            description="Maps of entropy, acceptance and drift over the picture, tokens per pass, and the numbers.",
            search_aliases=["metrics", "heatmap", "acceptance", "drift", "entropy", "CSD"],
            is_output_node=True,
            inputs=[
                TraceSocket.Input("trace", tooltip="From the sampler or 'Quick generate'."),
                io.Image.Input("image", optional=True, tooltip="The pictures of the same run, to lie under the maps."),
            ],
            outputs=[
                *(io.Image.Output(name, display_name=name, tooltip=text) for name, text in maps.items()),
                io.Image.Output("plot", display_name="plot", tooltip="Tokens of every pass."),
                io.String.Output("report", display_name="report", tooltip="The numbers and the method, as text."),
            ],
        )

    @classmethod
    def execute(cls, trace, image=None) -> io.NodeOutput:
        pictures = None if image is None else to_pictures(image)
        names = ("entropy", "acceptance", "drift")
        maps = [to_images(trace_views.map_pictures(name, trace.traces, pictures)) for name in names]
        plots = to_images([trace_views.plot(one) for one in trace.traces])
        report = trace_views.report(trace.traces, trace.recipes)
        return io.NodeOutput(*maps, plots, report, ui=ui.PreviewText(report))
