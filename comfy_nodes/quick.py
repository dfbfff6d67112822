"""Everything in one node, for a first picture."""

from __future__ import annotations

from comfy_api.latest import io

from csd_pipeline.presets import build_parts, read_preset

from . import memory, widgets
from .methods import presets, sampling_numbers
from .sockets import Prompt, TargetSocket, TraceSocket


class QuickGenerate(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDQuickGenerate",
            display_name="Quick generate",
            category="CSD",
            description="Prompt in, picture out, with the embedded model or one from 'Load target'.",
            search_aliases=["text to image", "Janus", "JanusImageGeneration", "CSD", "beginner"],
            hidden=[io.Hidden.unique_id],
            inputs=[
                io.String.Input(
                    "prompt",
                    multiline=True,
                    default="red apple on white",
                    tooltip="What to draw. The embedded model knows captions like 'panda on grass'.",
                ),
                io.String.Input(
                    "negative",
                    multiline=True,
                    default="",
                    tooltip="What guidance moves away from. Empty: the model's own empty prompt.",
                ),
                io.Combo.Input(
                    "preset",
                    options=presets(),
                    default="exact",
                    tooltip="exact: the picture of plain decoding, faster. balanced, fast: faster still, near the "
                    "model. ar: plain decoding. Others: settings published for larger models.",
                ),
                widgets.seed(),
                widgets.images(),
                widgets.guidance(advanced=True),
                widgets.temperature(advanced=True),
                TargetSocket.Input(
                    "target", optional=True, tooltip="The model, from 'Load target'. Not connected: the embedded one."
                ),
                widgets.side("width"),
                widgets.side("height"),
            ],
            outputs=[
                io.Image.Output("image", display_name="image", tooltip="The pictures of the batch."),
                TraceSocket.Output("trace", display_name="trace", tooltip="What each pass did, for 'Trace'."),
            ],
        )

    @classmethod
    def execute(
        cls,
        prompt,
        negative,
        preset,
        seed,
        images,
        guidance=-1.0,
        temperature=-1.0,
        target=None,
        width=0,
        height=0,
    ) -> io.NodeOutput:
        from .generation import draw, pixels

        target = target or memory.load_embedded()
        settings = read_preset(preset)
        own = {name: value for name, value in sampling_numbers(guidance, temperature).items() if value is not None}
        numbers = settings["call"] | own | {"width": width or None, "height": height or None}
        tokens, trace = draw(
            target,
            Prompt(prompt, negative),
            build_parts(settings),
            cls.hidden.unique_id,
            seed=seed,
            num_images_per_prompt=images,
            **numbers,
        )
        return io.NodeOutput(pixels(tokens), trace)
