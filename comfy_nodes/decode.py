"""Tokens to pixels."""

from __future__ import annotations

from comfy_api.latest import io

from .sockets import TokensSocket


class Decode(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="CSDDecode",
            display_name="Decode",
            category="CSD",
            description="Makes pixels of tokens with the image decoder of the model that drew them.",
            search_aliases=["VAE decode", "VQ decode", "CSD"],
            inputs=[TokensSocket.Input("tokens", tooltip="From the sampler.")],
            outputs=[io.Image.Output("image", display_name="image", tooltip="The pictures of the batch.")],
        )

    @classmethod
    def execute(cls, tokens) -> io.NodeOutput:
        from .generation import pixels

        return io.NodeOutput(pixels(tokens))
