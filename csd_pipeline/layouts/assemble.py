"""From a described checkpoint to a target: every tensor in its place, or a refusal that names the ones that are not."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import torch
from accelerate import init_empty_weights
from torch import nn

from csd_pipeline.checkpoint import is_tied, refuse_mismatch
from csd_pipeline.weight_files import IncompleteCheckpoint

from .base import Destinations, OpenCheckpoint
from .split_files import SplitFiles, describe, read


def skeleton(checkpoint: OpenCheckpoint) -> nn.Module:
    """The target without storage for its parameters (meta device); buffers that are not stored have their values."""
    with init_empty_weights(include_buffers=False):
        return checkpoint.build().eval()


def check(checkpoint: OpenCheckpoint, model: nn.Module) -> dict[Path | SplitFiles, dict[str, Destinations]]:
    """Where every stored tensor goes, by file and stored name.

    Args:
        checkpoint: the description.
        model: its skeleton.

    Raises:
        IncompleteCheckpoint: a piece of the checkpoint, or a tensor, is missing, has no place or another shape.
    """
    if checkpoint.lacks:
        raise IncompleteCheckpoint(checkpoint.lacks)
    wanted, found, unknown, wrong = model.state_dict(), set(), [], []
    places: dict[Path | SplitFiles, dict[str, Destinations]] = defaultdict(dict)
    for piece in checkpoint.pieces:
        earlier = frozenset(found)
        for file in piece.files:
            for stored, tensor in describe(file).items():
                destinations = [entry for entry in piece.translate(stored) if entry[0] not in earlier]
                for name, change in destinations:
                    if name not in wanted:
                        unknown.append(stored)
                        continue
                    shape = _changed_shape(tensor, change)
                    if shape != tuple(wanted[name].shape):
                        wrong.append((stored, shape or tuple(tensor.shape), tuple(wanted[name].shape)))
                    found.add(name)
                places[file][stored] = destinations
    missing = [name for name in wanted if name not in found and not is_tied(model, name, found)]
    refuse_mismatch(checkpoint.place, type(model).__name__, len(wanted), missing, unknown, wrong)
    return places


def load(checkpoint: OpenCheckpoint, dtype: torch.dtype | str = "auto") -> nn.Module:
    """The target with its weights, on the CPU; one copy of them is held in memory, and one tensor more.

    Args:
        checkpoint: the description.
        dtype: of the weights; "auto" keeps each as it is stored.

    Raises:
        IncompleteCheckpoint: as :func:`check`, before any weight is read.
    """
    model = skeleton(checkpoint)
    for file, places in check(checkpoint, model).items():
        for stored, tensor in read(file):
            for name, change in places[stored]:
                value = tensor if change is None else change(tensor)
                if dtype != "auto" and value.is_floating_point():
                    value = value.to(dtype)
                value = value.clone(memory_format=torch.contiguous_format)  # off the file, and shared with no other
                parent, _, leaf = name.rpartition(".")
                model.get_submodule(parent).load_state_dict({leaf: value}, strict=False, assign=True)
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    return model


def _changed_shape(tensor: torch.Tensor, change) -> tuple[int, ...] | None:
    try:
        return tuple((tensor if change is None else change(tensor)).shape)
    except RuntimeError:  # a tensor of another shape can not be rearranged
        return None
