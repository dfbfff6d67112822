"""Targets under ComfyUI's own memory management: it loads, moves and unloads them."""

from __future__ import annotations

import comfy.model_management as management
import folder_paths
import torch
from comfy.model_patcher import ModelPatcher

from .model_folders import EMBEDDED, FOLDER, find_model
from .sockets import Target

DTYPES = ("auto", "bf16", "fp16", "fp32")
_TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class _TargetModule(torch.nn.Module):
    """ComfyUI sets ``device`` on the module it moves, which a transformers model does not allow."""

    def __init__(self, target: torch.nn.Module):
        super().__init__()
        self.target = target


def roots() -> list[str]:
    """Folders that hold target models, those of extra_model_paths.yaml included."""
    return folder_paths.get_folder_paths(FOLDER)


def load(model: str, dtype: str) -> Target:
    """Read a target from disk; it stays on the offload device until a node needs it.

    Raises:
        ValueError: no such folder, or one whose checkpoint is not whole.
    """
    from csd_pipeline import CSDAutoregressivePipeline

    pipeline = CSDAutoregressivePipeline.from_pretrained(find_model(model, roots()), dtype=torch_dtype(dtype))
    pipeline.set_progress_bar_config(disable=True)
    offload = management.unet_offload_device()
    module = _TargetModule(pipeline.target).to(offload)
    return Target(pipeline, ModelPatcher(module, management.get_torch_device(), offload))


def load_embedded() -> Target:
    """The model that comes with the package."""
    return load(EMBEDDED, "auto")


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name of :data:`DTYPES`; "auto" is what ComfyUI holds best for the device."""
    if name != "auto":
        return _TORCH[name]
    device = management.get_torch_device()
    if management.should_use_bf16(device):
        return torch.bfloat16
    return torch.float16 if management.should_use_fp16(device) else torch.float32


def bring(target: Target, memory_required: int = 0) -> None:
    """Put the whole target on the compute device; ComfyUI makes room for it and for ``memory_required`` bytes."""
    management.load_models_gpu([target.patcher], memory_required=memory_required, force_full_load=True)
