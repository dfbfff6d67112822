"""The prompt node."""

from __future__ import annotations

from comfy_api.latest import io

from .sockets import Prompt, PromptSocket


class PromptNode(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDPrompt",
            display_name="Prompt",
            category="CSD",
            description="What to draw, and what to keep away from.",
            search_aliases=["text", "negative prompt", "CSD"],
            inputs=[
                io.String.Input(
                    "positive",
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
            ],
            outputs=[PromptSocket.Output(display_name="prompt", tooltip="For the sampler.")],
        )

    @classmethod
    def execute(cls, positive: str, negative: str) -> io.NodeOutput:
        return io.NodeOutput(Prompt(positive, negative))
