"""LlamaGen's network (arXiv 2406.06525), which no library holds: a Llama over image codes with a 2-D rotary position.

Module names are those of the published checkpoints, so that their tensors load by name. Not in the checkpoints but part
of the target here: the VQ decoder (the same network as Janus', which transformers has) and, for text, the T5 encoder.
"""

from __future__ import annotations

import torch
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn
from transformers import JanusVQVAE, JanusVQVAEConfig, T5Config, T5EncoderModel

from csd_pipeline.decoding.cache import RowCache

CONDITIONS = ("class", "text")


class LlamaGenTarget(ModelMixin, ConfigMixin):
    """The target: embeddings of a class or a text, the decoder over image codes, its VQ decoder, its text encoder.

    Args:
        condition: "class" (a label is one condition slot) or "text" (T5 features, up to ``condition_slots``).
        grid_side: codes per side of the square picture (16: 256 px, 24: 384 px, 32: 512 px with the VQ of factor 16).
        dim, num_layers, num_heads, ffn_dim: sizes of the decoder.
        vocabulary: number of image codes.
        classes: number of class labels.
        condition_slots: slots of the condition: 1 for classes, 120 for text.
        caption_dim: width of the text features.
        rope_base, norm_eps: as in the published code.
        vq_config: overrides of transformers' ``JanusVQVAEConfig``.
        text_config: a T5 config as a dict; needed for text.

    Raises:
        ValueError: an unknown condition, or text without ``text_config``.
    """

    _no_split_modules = ["LlamaGenLayer"]
    _supports_gradient_checkpointing = False

    @register_to_config
    def __init__(
        self,
        condition: str = "text",
        grid_side: int = 16,
        dim: int = 1280,
        num_layers: int = 36,
        num_heads: int = 20,
        ffn_dim: int = 3584,
        vocabulary: int = 16384,
        classes: int = 1000,
        condition_slots: int = 120,
        caption_dim: int = 2048,
        rope_base: float = 10000.0,
        norm_eps: float = 1e-5,
        vq_config: dict | None = None,
        text_config: dict | None = None,
    ):
        super().__init__()
        if condition not in CONDITIONS:
            raise ValueError(f"condition must be one of {', '.join(CONDITIONS)}, got {condition!r}")
        if condition == "text" and text_config is None:
            raise ValueError("a text-conditional LlamaGen needs its T5 text encoder; give `text_config`, a T5 config")
        if condition == "class":
            self.cls_embedding = LabelEmbedding(classes, dim)
        else:
            self.cls_embedding = CaptionEmbedding(caption_dim, dim, condition_slots)
        self.tok_embeddings = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(LlamaGenLayer(i, dim, num_heads, ffn_dim, norm_eps) for i in range(num_layers))
        self.norm = nn.RMSNorm(dim, eps=norm_eps)
        self.output = nn.Linear(dim, vocabulary, bias=False)
        self.vq = JanusVQVAE(JanusVQVAEConfig(num_embeddings=vocabulary, num_patches=grid_side, **(vq_config or {})))
        self.text_encoder = _text_encoder(text_config) if condition == "text" else None

    def hidden_states(self, embeds: Tensor, visible: Tensor, place: Tensor, cache: RowCache) -> Tensor:
        """[R, T, D] embeddings -> [R, T, D] normalised hidden states.

        Args:
            embeds: condition or code embeddings.
            visible: [R, 1, T, keys] bool.
            place: [R, T] int64 number of each code in the picture, negative on condition slots.
            cache: written at its current slots.
        """
        rotation = rotary_2d(
            place, self.config.grid_side, self.config.dim // self.config.num_heads, self.config.rope_base
        )
        hidden = embeds
        for layer in self.layers:
            hidden = layer(hidden, visible, rotation, cache)
        return self.norm(hidden)


LlamaGenTarget.__module__ = "csd_pipeline"  # saved folders name it there


def _text_encoder(config: dict) -> T5EncoderModel:
    """T5's encoder with its word embedding in one place: transformers registers it twice, and loaders that give
    weights by name would fill one of the two."""
    encoder = T5EncoderModel(T5Config(**config))
    del encoder.encoder.embed_tokens
    encoder.encoder.__dict__["embed_tokens"] = encoder.shared
    return encoder


class LabelEmbedding(nn.Module):
    """One embedding per class, the last one for guidance."""

    def __init__(self, classes: int, dim: int):
        super().__init__()
        self.embedding_table = nn.Embedding(classes + 1, dim)

    def forward(self, labels: Tensor) -> Tensor:
        return self.embedding_table(labels)


class CaptionEmbedding(nn.Module):
    """Projection of text features, and the features that stand for no text."""

    def __init__(self, caption_dim: int, dim: int, slots: int):
        super().__init__()
        self.cap_proj = nn.Module()
        self.cap_proj.fc1 = nn.Linear(caption_dim, dim, bias=False)
        self.cap_proj.fc2 = nn.Linear(dim, dim, bias=False)
        self.register_buffer("uncond_embedding", torch.zeros(slots, caption_dim))

    def forward(self, features: Tensor) -> Tensor:
        return self.cap_proj.fc2(nn.functional.gelu(self.cap_proj.fc1(features), approximate="tanh"))


class LlamaGenLayer(nn.Module):
    """Pre-norm attention and SwiGLU."""

    def __init__(self, index: int, dim: int, heads: int, ffn_dim: int, norm_eps: float):
        super().__init__()
        self.index, self.heads = index, heads
        self.attention = nn.Module()
        self.attention.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attention.wo = nn.Linear(dim, dim, bias=False)
        self.feed_forward = nn.Module()
        self.feed_forward.w1 = nn.Linear(dim, ffn_dim, bias=False)
        self.feed_forward.w3 = nn.Linear(dim, ffn_dim, bias=False)
        self.feed_forward.w2 = nn.Linear(ffn_dim, dim, bias=False)
        self.attention_norm = nn.RMSNorm(dim, eps=norm_eps)
        self.ffn_norm = nn.RMSNorm(dim, eps=norm_eps)

    def forward(self, hidden: Tensor, visible: Tensor, rotation: tuple[Tensor, Tensor], cache: RowCache) -> Tensor:
        heads = self.attention.wqkv(self.attention_norm(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each [R, heads, T, head_dim]
        keys, values = cache.layers[self.index].update(rotate(key, *rotation), value)
        mixed = nn.functional.scaled_dot_product_attention(rotate(query, *rotation), keys, values, attn_mask=visible)
        hidden = hidden + self.attention.wo(mixed.transpose(1, 2).flatten(2))
        feed, normed = self.feed_forward, self.ffn_norm(hidden)
        return hidden + feed.w2(nn.functional.silu(feed.w1(normed)) * feed.w3(normed))


def rotary_2d(place: Tensor, side: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine [R, 1, T, head_dim / 2] float32: the first half of the pairs turns with the row, the rest with
    the column. Condition slots (negative ``place``) get 0 for both, which blanks their queries and keys, as published.
    """
    quarter = torch.arange(0, head_dim // 2, 2, device=place.device)[: head_dim // 4].float()
    frequency = base ** (-quarter / (head_dim // 2))
    known = place.clamp(min=0)
    row, column = known.div(side, rounding_mode="floor"), known % side
    angle = torch.cat([row[..., None] * frequency, column[..., None] * frequency], -1)
    real = (place >= 0)[..., None]
    return (angle.cos() * real)[:, None], (angle.sin() * real)[:, None]


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn neighbouring pairs of the last axis of [R, heads, T, head_dim], in float32."""
    even, odd = heads.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1)
    return turned.flatten(-2).to(heads.dtype)
