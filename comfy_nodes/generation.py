"""One run of the pipeline under ComfyUI: memory, progress, previews, cancelling."""

from __future__ import annotations

import comfy.model_management as management
import comfy.utils
import torch

from csd_pipeline.pixels import decode_pixels
from csd_pipeline.targets import adapter_for

from .events import send_to_node
from .live import LiveRun
from .memory import bring
from .preview import RowPreview
from .run_memory import run_bytes
from .sockets import Prompt, Target, Tokens, TraceBatch


def draw(target: Target, prompt: Prompt, parts: dict, node_id: str, **call) -> tuple[Tokens, TraceBatch]:
    """Draw a batch.

    Args:
        parts: drafter, relaxation and alignment filter, any of them None.
        node_id: node that shows progress and plot.
        call: further arguments of the pipeline call; ``seed`` and ``num_images_per_prompt`` among them.

    Raises:
        The host's interrupt exception as it is; ValueError with a sentence for arguments the pipeline refuses.
    """
    pipeline = with_parts(target.pipeline, parts)
    size = pipeline.size_of(call.get("height"), call.get("width"))
    adapter, images = adapter_for(pipeline.target, size), call["num_images_per_prompt"]
    drafter = parts["drafter"]
    bring(target, run_bytes(pipeline.target, adapter, images, drafter.window + drafter.extra_tokens))
    total = images * adapter.grid.tokens
    bar = comfy.utils.ProgressBar(total, node_id=node_id)
    live = LiveRun(
        total,
        check_cancelled=management.throw_exception_if_processing_interrupted,
        show_progress=lambda tokens, total, picture: bar.update_absolute(
            tokens, total, ("JPEG", picture, 512) if picture else None
        ),
        preview=RowPreview(adapter),
        send=lambda event: send_to_node(node_id, event),
    )
    result = pipeline(
        prompt.positive,
        prompt.negative or None,
        output_type="latent",
        record_maps=True,
        callback_on_step_end=live,
        callback_on_step_end_tensor_inputs=list(live.tensors),
        **call,
    )
    return Tokens(target, result.images.cpu(), adapter.image_size), TraceBatch(result.traces, result.recipes)


def pixels(tokens: Tokens) -> torch.Tensor:
    """IMAGE of a batch of tokens: [B, H, W, 3] float32 in 0..1 on the intermediate device."""
    bring(tokens.target)
    model = tokens.target.pipeline.target
    with torch.no_grad():
        decoded = decode_pixels(adapter_for(model, tokens.size), tokens.ids.to(model.device))
    return ((decoded + 1) / 2).permute(0, 2, 3, 1).contiguous().to(management.intermediate_device(), torch.float32)


def with_parts(pipeline, parts: dict):
    """A pipeline of the same target and sampling defaults with other parts; the given one stays as it is.

    What automatic drafting learns is theirs together, so that one run knows what those before it have shown.
    """
    own = {name: value for name, value in pipeline.config.items() if name.startswith("default_")}
    changed = type(pipeline)(target=pipeline.target, tokenizer=pipeline.tokenizer, **parts, **own)
    changed.set_progress_bar_config(disable=True)
    changed._automatic_drafting = pipeline._automatic_drafting
    return changed
