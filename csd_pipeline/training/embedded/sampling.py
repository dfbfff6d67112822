"""Plain batched autoregressive sampling, for measuring a model during and after its training."""

import inspect

import torch
from transformers import DynamicCache, JanusForConditionalGeneration, LlamaModel, PreTrainedTokenizerFast

from .batches import pad_left
from .pixel_codes import GRID
from .text_tokenizer import PAD_ID, prompt_ids

CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(LlamaModel.forward).parameters else "past_key_values"


@torch.no_grad()
def sample_tokens(
    model: JanusForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    captions: list[str],
    guidance: float,
    temperature: float,
    seed: int,
) -> torch.Tensor:
    """One picture per caption, as tokens (n, 256), with classifier-free guidance in Janus' form."""
    inner, generator = model.model, torch.Generator().manual_seed(seed)
    embeddings, mask = _prompts(model, tokenizer, captions, guided=guidance != 1)
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    cache, drawn = DynamicCache(config=model.config.text_config), []
    for _ in range(GRID * GRID):
        hidden = inner.language_model(
            inputs_embeds=embeddings, attention_mask=mask, position_ids=positions, use_cache=True,
            **{CACHE_ARGUMENT: cache},
        ).last_hidden_state[:, -1]  # fmt: skip
        logits = inner.generation_head(hidden)
        if guidance != 1:
            named, unnamed = logits.chunk(2)
            logits = unnamed + guidance * (named - unnamed)
        drawn.append(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
        rows = drawn[-1].repeat(len(mask) // len(captions), 1)
        embeddings = inner.generation_aligner(inner.generation_embeddings(rows))
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        positions = positions[:, -1:] + 1
    return torch.cat(drawn, 1)


def _prompts(model, tokenizer, captions: list[str], guided: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and mask of the prompts; when guided, followed by the same prompts with the caption as PAD."""
    prompts = [prompt_ids(tokenizer, caption) for caption in captions]
    if guided:
        prompts += [[p[0], *[PAD_ID] * (len(p) - 2), p[-1]] for p in prompts]
    ids, mask = pad_left(prompts)
    return model.model.language_model.embed_tokens(ids), mask


@torch.no_grad()
def decode_pictures(model: JanusForConditionalGeneration, tokens: torch.Tensor, batch: int = 4) -> torch.Tensor:
    """Tokens (n, 256) -> pictures (n, 3, 128, 128) in -1..1."""
    return torch.cat([model.model.vqmodel.decode(part).clamp(-1, 1) for part in tokens.split(batch)])
