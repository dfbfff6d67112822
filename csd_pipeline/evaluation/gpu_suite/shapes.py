"""Sizes of targets: those of Janus-Pro, and one that a processor can run to try the suite out."""

from __future__ import annotations

from dataclasses import dataclass

_PATCH, _LATENT = 16, 8  # pixels per code; width of a code's vector


@dataclass(frozen=True)
class Shape:
    """A Janus target. Only what a pass over image codes runs has its real size, vision and picture decoder are tiny.

    Args:
        layers, width, mlp, heads: of the language model.
        codes: V, size of the image vocabulary.
        side: the picture is ``side`` x ``side`` codes.
        words: size of the text vocabulary.
        float32_too: small enough to be compared in float32 as well.
    """

    name: str
    layers: int
    width: int
    mlp: int
    heads: int
    codes: int = 16384
    side: int = 24
    words: int = 102400
    float32_too: bool = False

    def config(self):
        """JanusConfig of this size."""
        from transformers import JanusConfig

        text = {
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "vocab_size": self.words,
            "max_position_embeddings": 16384,
        }
        vision = {
            "model_type": "janus_vision_model",
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": self.side * _PATCH,
            "patch_size": _PATCH,
            "mlp_ratio": 2.0,
            "projection_dim": self.width,
            "depth": 1,
            "num_image_tokens": self.side**2,
        }
        vq = {
            "model_type": "janus_vqgan",
            "embed_dim": _LATENT,
            "num_embeddings": self.codes,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1, 1],
            "num_res_blocks": 1,
            "latent_channels": 32,
            "num_patches": self.side,
            "projection_dim": self.width,
            "image_token_embed_dim": self.width,
            "num_hidden_layers": 2,
        }
        return JanusConfig(text_config=text, vision_config=vision, vq_config=vq, image_token_id=5)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("1b", layers=24, width=2048, mlp=5632, heads=16, float32_too=True),
        Shape("7b", layers=30, width=4096, mlp=11008, heads=32),
        Shape("tiny", layers=2, width=32, mlp=48, heads=2, codes=64, side=8, words=64, float32_too=True),
    )
}
