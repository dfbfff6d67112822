"""Prompts to left-padded token ids, the guidance rows included."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


def check_prompts(prompt, negative_prompt) -> list[str]:
    """The prompts as a list.

    Raises:
        ValueError: no prompt, an empty list, something that is no text, or a wrong number of negative prompts.
    """
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, (list, tuple)) or not prompts or not all(isinstance(p, str) for p in prompts):
        raise ValueError(f"prompt must be a text or a non-empty list of texts, got {prompt!r}")
    if negative_prompt is not None and not isinstance(negative_prompt, str):
        if not isinstance(negative_prompt, (list, tuple)) or not all(isinstance(p, str) for p in negative_prompt):
            raise ValueError(f"negative_prompt must be a text or a list of texts, got {negative_prompt!r}")
        if len(negative_prompt) != len(prompts):
            raise ValueError(f"got {len(negative_prompt)} negative prompts for {len(prompts)} prompts; give one or as many")
    return list(prompts)


def encode(adapter, tokenizer, prompts: list[str], negative: str | list[str] | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids and mask [P, S] of the prompts and of their guidance rows."""
    texts = [_formatted(adapter, tokenizer, text) for text in prompts]
    if negative is None:
        ids, mask = _pad(tokenizer, texts)
        return ids, mask, adapter.unconditional(ids, tokenizer), mask
    negatives = [negative] * len(prompts) if isinstance(negative, str) else list(negative)
    ids, mask = _pad(tokenizer, texts + [_formatted(adapter, tokenizer, text) for text in negatives])
    count = len(prompts)
    return ids[:count], mask[:count], ids[count:], mask[count:]


def _pad(tokenizer, texts: list[str]) -> tuple[Tensor, Tensor]:
    encoded = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    return encoded.input_ids, encoded.attention_mask


def _formatted(adapter, tokenizer, prompt: str) -> str:
    """The prompt in the family's format, cut where it would not fit beside the image."""
    limit = min(tokenizer.model_max_length, adapter.prompt_room)
    words = tokenizer(prompt, add_special_tokens=False, verbose=False).input_ids
    text, keep = adapter.format_prompt(prompt, tokenizer), len(words)
    while len(tokenizer(text, verbose=False).input_ids) > limit and keep > 0:
        keep = min(keep - 1, keep - (len(tokenizer(text, verbose=False).input_ids) - limit))
        text = adapter.format_prompt(tokenizer.decode(words[: max(keep, 0)], skip_special_tokens=True), tokenizer)
    if keep < len(words):
        warnings.warn(f"the prompt has {len(words)} tokens, the model takes {keep}: the rest was cut off", stacklevel=2)
    return text


def repeat_rows(tensor: Tensor | None, times: int, device: torch.device) -> Tensor | None:
    """Each row ``times`` times in a row, on ``device``."""
    return None if tensor is None else tensor.repeat_interleave(times, 0).to(device)


def per_image(texts: str | list[str] | None, images: int) -> list[str] | None:
    """One text per image: prompts repeat in order."""
    if texts is None:
        return None
    texts = [texts] if isinstance(texts, str) else list(texts)
    return [text for text in texts for _ in range(images // len(texts))]
