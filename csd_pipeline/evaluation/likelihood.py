"""How probable a picture is to the target itself: a quality figure every model has."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from csd_pipeline.decoding import Warp
from csd_pipeline.targets import PromptBatch

_FLOOR = 1e-30  # a token the law rounds to 0 counts as this, 69 nats


@torch.no_grad()
def nats_per_token(adapter, prompt: PromptBatch, tokens: Tensor, warp: Warp) -> float:
    """Mean of ``-ln p(token)`` over one image, forced tokens left out, from a single forward over all of it.

    The law is that of ``warp`` without top-k and top-p, which would make tokens impossible that relaxed arms may emit;
    temperature 0 is read as 1. Pictures of plain decoding have a typical value; a method that damages them moves away
    from it (up: improbable tokens; down: everything smoothed).

    Args:
        prompt: of one image.
        tokens: [1, N] int64.
    """
    warp = replace(warp, temperature=warp.temperature or 1.0, top_k=0, top_p=1.0)
    session = adapter.open(prompt, tokens.shape[1])
    logits = session.prefill()
    if tokens.shape[1] > 1:
        one = torch.ones(1, dtype=torch.int64, device=tokens.device)
        logits = torch.cat([logits, session.step(tokens[:, :-1], one, 1)], dim=1)
    laws, forced = warp.laws(logits, images=1), adapter.grid.forced
    chosen = laws.gather(-1, tokens.clamp(max=laws.shape[-1] - 1)[..., None])[0, :, 0]
    if forced is not None:
        chosen = chosen[forced.to(chosen.device) < 0]
    return -chosen.clamp(min=_FLOOR).log().mean().item()
