"""How much memory a run needs beside the weights, so that the host can make room before it starts."""

from __future__ import annotations

from csd_pipeline.decoding.noise import kept_bytes

_LAW_COPIES = 12  # float32 tensors [B, window, V] alive at once: logits of both rows, laws, masses, noise, sort buffers
_PROMPT = 128  # tokens of a long prompt


def run_bytes(target, adapter, images: int, window: int) -> int:
    """Bytes of the KV cache (both guidance rows; none for a target without a known cache), of the laws of one window,
    and of the noise and the laws that are kept between passes.

    Args:
        target: transformers model.
        adapter: its adapter.
        images: B.
        window: tokens per forward.
    """
    config = getattr(target.config, "text_config", target.config)
    layers = getattr(config, "num_hidden_layers", 0)
    grid, vocabulary = adapter.grid, adapter.vocabulary
    laws = 4 * images * vocabulary * (_LAW_COPIES * window + (window + grid.columns + 3))
    laws += kept_bytes(images, grid.tokens, vocabulary)
    if not layers:
        return laws
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    capacity = _PROMPT + grid.tokens + window
    cache = 2 * images * layers * 2 * heads * width * capacity * target.dtype.itemsize
    return cache + laws
