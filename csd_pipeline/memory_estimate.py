"""What a picture takes in memory, before any weight is read: the decoding loop itself, run without data.

On the meta device tensors have shapes and number formats but no content. Three passes there (the prompt, the first
window, the last one, whose context is longest) and one decoding of codes tell the bytes that are alive at the same
time, whatever the family and the method. What kernels and the allocator take for themselves on top is not in it.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from .decoding import Warp, decode
from .drafters import JacobiDrafter
from .pixels import images_per_slice
from .relaxation import Exact
from .targets.base import CachedSession, PromptBatch

PROMPT = 64  # tokens of a prompt where none is given


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes.

    Args:
        weights: of the target.
        cache: keys and values of all rows.
        drawing: the largest moment of a pass, on top of these two.
        pixels: the largest moment of turning codes into pixels, on top of the weights; the cache is gone by then.
    """

    weights: int
    cache: int
    drawing: int
    pixels: int

    @property
    def peak(self) -> int:
        return self.weights + max(self.cache + self.drawing, self.pixels)


@torch.no_grad()
def estimate(
    adapter,
    *,
    dtype: torch.dtype,
    images: int,
    window: int,
    warp: Warp | None = None,
    prompt: int = PROMPT,
    drafter=None,
    relaxation=None,
    alignment_filter=None,
) -> MemoryEstimate:
    """What drawing takes.

    Args:
        adapter: of a target without storage; its model is moved to the meta device and to ``dtype``.
        dtype: of weights, keys and values.
        images: drawn at once.
        window: tokens per forward, at most, a tree's further candidates left out.
        warp: guidance, temperature, truncation; None: the family's.
        prompt: tokens of the longest prompt.
        drafter, relaxation, alignment_filter: the method; None: Jacobi drafts, exact, no filter.
    """
    model = adapter.model.to(device="meta", dtype=dtype)
    if hasattr(model, "tie_weights"):
        model.tie_weights()  # the move gave shared weights a copy for each of their modules
    tokens = adapter.grid.tokens
    window = min(window, tokens)
    warp = warp or Warp(adapter.default_guidance_scale, adapter.default_temperature)
    ids = torch.zeros(images, min(prompt, adapter.prompt_room), dtype=torch.int64, device="meta")
    rows = (ids, torch.ones_like(ids)) * (2 if warp.guided else 1)
    drafter = drafter or JacobiDrafter(window, "gumbel")
    parts = {"drafter": drafter, "relaxation": relaxation or Exact()}
    parts |= {"alignment_filter": alignment_filter, "warp": warp, "device": "meta"}
    with LiveBytes() as live, _Unseen([1, max(1, tokens - window), tokens], images):
        session = adapter.open(PromptBatch(*rows), window + drafter.extra_tokens)
        with suppress(_Finished):
            decode(session, adapter, seeds=[0] * images, on_pass=_until(tokens), **parts)
        cache = bytes_of_cache(session)
    del session
    with LiveBytes() as decoded:
        adapter.decode(ids.new_zeros(min(images, images_per_slice(adapter)), tokens)).float()
    return MemoryEstimate(bytes_of(model), cache, live.peak - cache, decoded.peak)


def bytes_of(model: torch.nn.Module) -> int:
    """Of the parameters of a model; one that several modules share counts once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def bytes_of_cache(session) -> int:
    """Of the keys and values a session that has begun keeps; 0 for one without a cache."""
    layers = session.cache.layers if isinstance(session, CachedSession) else ()
    return sum(tensor.numel() * tensor.element_size() for layer in layers for tensor in (layer.keys, layer.values))


class LiveBytes(TorchDispatchMode):
    """Within this context: bytes of the tensors that were made in it and are alive. ``peak`` is the most there were."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 0  # is all of a mask set? "no" is the general case
        given = {id(tensor.untyped_storage()) for tensor in _tensors((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            if id(tensor.untyped_storage()) not in given:
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return

        def gone(_):
            del self._known[key]
            self.now -= size

        self._known[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


class _Unseen(TorchFunctionMode):
    """What the loop asks of contents, answered for tensors that have none.

    The one host read of a pass gets the next of ``counts`` for every image. Attention keeps no scores, as the kernels
    of real devices; torch would unfold it on this one.
    """

    def __init__(self, counts: list[int], images: int):
        super().__init__()
        self.counts, self.images = iter(counts), images

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.tolist:
            return [next(self.counts)] * self.images + [1]
        if function is torch.nn.functional.scaled_dot_product_attention:
            return torch.empty_like(args[0])
        return function(*args, **(kwargs or {}))


class _Finished(Exception):
    """The last pass was made; the trace of a run without numbers can not be written."""


def _until(tokens: int):
    """A callback that ends the loop with the last pass."""

    def on_pass(progress) -> None:
        if progress.counts[0] == tokens:
            raise _Finished

    return on_pass


def _tensors(tree):
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor))
