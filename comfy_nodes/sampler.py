"""The sampler: the only node that runs the decoding loop."""

from __future__ import annotations

from comfy_api.latest import io

from . import widgets
from .methods import complete_method, sampling_numbers
from .sockets import (
    DrafterSocket,
    FilterSocket,
    PromptSocket,
    RelaxationSocket,
    TargetSocket,
    TokensSocket,
    TraceSocket,
)


class Sampler(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDSampler",
            display_name="Sampler",
            category="CSD",
            description="Draws the tokens of a picture by speculative decoding. With no part connected: the very "
            "picture of plain decoding with that seed, several tokens per pass.",
            search_aliases=["KSampler", "speculative decoding", "Jacobi decoding", "autoregressive", "CSD"],
            hidden=[io.Hidden.unique_id],
            inputs=[
                TargetSocket.Input("target", tooltip="The model, from 'Load target'."),
                PromptSocket.Input("prompt", tooltip="What to draw."),
                DrafterSocket.Input(
                    "drafter",
                    optional=True,
                    tooltip="Who proposes tokens. Not connected: Jacobi, window 32 (gumbel; coupled if relaxed).",
                ),
                RelaxationSocket.Input(
                    "relaxation",
                    optional=True,
                    tooltip="How much more willingly drafts are accepted. Not connected: exact.",
                ),
                FilterSocket.Input(
                    "filter", optional=True, tooltip="Where the relaxation may act. Not connected: everywhere."
                ),
                widgets.seed(),
                widgets.guidance(),
                widgets.temperature(),
                io.Int.Input(
                    "top_k",
                    default=-1,
                    min=-1,
                    max=1_000_000,
                    tooltip="Sample among the k likeliest tokens. -1: the model's own. 0: off.",
                ),
                io.Float.Input(
                    "top_p",
                    default=-1.0,
                    min=-1.0,
                    max=1.0,
                    step=0.01,
                    tooltip="Sample among the likeliest tokens that together have this probability. -1: the model's "
                    "own. 1: off.",
                ),
                widgets.images(),
                widgets.side("width"),
                widgets.side("height"),
            ],
            outputs=[
                TokensSocket.Output("tokens", display_name="tokens", tooltip="Token ids, for 'Decode'."),
                TraceSocket.Output("trace", display_name="trace", tooltip="What each pass did, for 'Trace'."),
            ],
        )

    @classmethod
    def execute(
        cls,
        target,
        prompt,
        seed,
        guidance,
        temperature,
        top_k,
        top_p,
        images,
        drafter=None,
        relaxation=None,
        filter=None,
        width=0,
        height=0,
    ) -> io.NodeOutput:
        from .generation import draw

        numbers = sampling_numbers(guidance, temperature, top_k, top_p)
        parts = complete_method(drafter, relaxation, filter)
        numbers |= {"width": width or None, "height": height or None}
        return io.NodeOutput(
            *draw(target, prompt, parts, cls.hidden.unique_id, seed=seed, num_images_per_prompt=images, **numbers)
        )
