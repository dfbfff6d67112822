"""Prompts to left-padded token ids, the guidance rows included."""

from __future__ import annotations

import reprlib
import warnings

import torch
from torch import Tensor

from .targets import TargetAdapter, adapter_for
from .targets.janus import JanusAdapter


class _JanusPrompts(JanusAdapter):
    """The prompt side of the Janus adapter, which needs no weights."""

    prompt_room = 10**9

    def __init__(self):
        """No model: the length that fits is only known with one."""


def prompt_format(target, size: tuple[int, int] | None = None) -> TargetAdapter:
    """Who formats prompts: the target's adapter, or the Janus family's in a pipeline that holds only a tokenizer."""
    return _JanusPrompts() if target is None else adapter_for(target, size)


def check_prompts(prompt, negative_prompt) -> list[str]:
    """The prompts as a list.

    Raises:
        ValueError: no prompt, an empty list, something that is no text, or a wrong number of negative prompts.
    """
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, (list, tuple)) or not prompts or not all(isinstance(p, str) for p in prompts):
        raise ValueError(f"prompt must be a text or a non-empty list of texts, got {reprlib.repr(prompt)}")
    if negative_prompt is not None and not isinstance(negative_prompt, str):
        if not isinstance(negative_prompt, (list, tuple)) or not all(isinstance(p, str) for p in negative_prompt):
            raise ValueError(f"negative_prompt must be a text or a list of texts, got {reprlib.repr(negative_prompt)}")
        if len(negative_prompt) != len(prompts):
            raise ValueError(
                f"got {len(negative_prompt)} negative prompts for {len(prompts)} prompts; give one or as many"
            )
    return list(prompts)


def check_ids(ids: Tensor, mask: Tensor, negative_ids: Tensor | None, negative_mask: Tensor | None, target) -> None:
    """Refuse ids and masks that do not fit together or into the target.

    Raises:
        ValueError: not integer tensors [P, S] of one shape, padded on the right, too long, or an id the target has no
            embedding for.
    """
    rows = {"prompt_ids": ids, "prompt_attention_mask": mask}
    rows |= {"negative_prompt_ids": negative_ids, "negative_prompt_attention_mask": negative_mask}
    for name, tensor in rows.items():
        if tensor is None and name.startswith("negative"):
            continue
        if not isinstance(tensor, Tensor) or tensor.dtype.is_floating_point or tensor.dim() != 2 or tensor.numel() == 0:
            raise ValueError(f"{name} must be an integer tensor [prompts, length], got {reprlib.repr(tensor)}")
        if tensor.shape != ids.shape:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}, prompt_ids {list(ids.shape)}; pad both to one length"
            )
    for name in ("prompt_attention_mask", "negative_prompt_attention_mask"):
        if rows[name] is not None and (not rows[name][:, -1].all() or (rows[name].long().diff() < 0).any()):
            raise ValueError(f"{name} must be 0 on padding, which belongs on the left, and 1 from there on")
    if target is None:
        return
    adapter = adapter_for(target)
    room = adapter.prompt_room
    if ids.shape[1] > room:
        raise ValueError(
            f"the prompts have {ids.shape[1]} tokens, beside the image the model has room for {max(room, 0)}"
        )
    known = adapter.prompt_vocabulary
    largest = max(int(tensor.max()) for tensor in (ids, negative_ids) if tensor is not None)
    if known is not None and largest >= known:
        raise ValueError(
            f"the prompts have token id {largest}, the model knows {known} ids; load the tokenizer of this very model"
        )


def encode(
    adapter, tokenizer, prompts: list[str], negative: str | list[str] | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids and mask [P, S] of the prompts and of their guidance rows.

    Raises:
        ValueError: the tokenizer has no pad token.
    """
    if adapter.needs_tokenizer and tokenizer.pad_token_id is None:
        raise ValueError(
            "the tokenizer has no pad_token, which batches and guidance rows are filled with; set tokenizer.pad_token"
        )
    rows = [_fitting_ids(adapter, tokenizer, text + adapter.prompt_suffix) for text in prompts]
    negative = adapter.default_negative_prompt if negative is None else negative
    if negative is None:
        ids, mask = _pad(tokenizer, rows)
        return ids, mask, *adapter.guidance_rows(ids, mask, tokenizer)
    negatives = [negative] * len(prompts) if isinstance(negative, str) else list(negative)
    ids, mask = _pad(tokenizer, rows + [_fitting_ids(adapter, tokenizer, text) for text in negatives])
    count = len(prompts)
    return ids[:count], mask[:count], ids[count:], mask[count:]


def _pad(tokenizer, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Left-padded ids and mask [P, S]."""
    longest = max(map(len, rows))
    pad = 0 if tokenizer is None else tokenizer.pad_token_id
    ids = [[pad] * (longest - len(row)) + row for row in rows]
    mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def _fitting_ids(adapter, tokenizer, prompt: str) -> list[int]:
    """Ids of the prompt in the family's format, cut where it would not fit beside the image."""
    if not adapter.needs_tokenizer:
        return adapter.prompt_ids(prompt, None)
    limit = min(tokenizer.model_max_length, adapter.prompt_room)
    words = tokenizer(prompt, add_special_tokens=False, verbose=False).input_ids
    ids, keep = adapter.prompt_ids(prompt, tokenizer), len(words)
    while (excess := len(ids) - limit) > 0 and keep > 0:
        keep = max(keep - excess, 0)
        ids = adapter.prompt_ids(tokenizer.decode(words[:keep], skip_special_tokens=True), tokenizer)
    if keep < len(words):
        warnings.warn(f"the prompt has {len(words)} tokens, the model takes {keep}: the rest was cut off", stacklevel=2)
    return ids


def repeat_rows(tensor: Tensor | None, times: int, device: torch.device) -> Tensor | None:
    """Each row ``times`` times in a row, on ``device``."""
    return None if tensor is None else tensor.repeat_interleave(times, 0).to(device)


def per_image(texts: str | list[str] | None, images: int) -> list[str] | None:
    """One text per image: prompts repeat in order."""
    if texts is None:
        return None
    texts = [texts] if isinstance(texts, str) else list(texts)
    return [text for text in texts for _ in range(images // len(texts))]
