"""What happens between two target forwards: progress bar, the user's callback, interruption."""

from __future__ import annotations

import torch
from torch import Tensor

from .decoding import Progress, Warp


class StepMonitor:
    """Called by the decoding loop after every pass; answers False when the user asked to stop.

    Args:
        pipeline: its ``_guidance_scale`` and ``_interrupt`` are read anew after every callback, as in diffusers.
        bar: progress bar counting tokens of the whole batch.
        warp: sampling settings of the run; receives a guidance scale changed by the callback.
        callback: ``f(pipe, step, timestep, tensors) -> dict`` or None.
        tensor_inputs: names of the tensors the callback wants.
        vocabulary: V; token ids a callback returns must be below.
    """

    def __init__(self, pipeline, bar, warp: Warp, callback, tensor_inputs, vocabulary: int):
        self.pipeline, self.bar, self.warp, self.vocabulary = pipeline, bar, warp, vocabulary
        self.callback, self.tensor_inputs = callback, tensor_inputs or ()
        self.guided = warp.guided
        self.latents: Tensor | None = None  # token ids the callback of the last pass returned, if not the ones it got
        self.passes_before = self.tokens_before = 0  # of the batches before this one

    def begin_batch(self) -> None:
        """The next passes are of another batch of the same call: passes and tokens count on."""
        self.latents = None
        self.passes_before, self.tokens_before = self.pipeline._num_timesteps, self.bar.n

    def __call__(self, progress: Progress) -> bool:
        pipeline = self.pipeline
        self.bar.set_postfix(
            {"tokens/step": f"{max(progress.counts) / max(progress.passes - 1, 1):.2f}"}, refresh=False
        )
        self.bar.update(self.tokens_before + sum(progress.counts) - self.bar.n)
        pipeline._num_timesteps = self.passes_before + progress.passes
        if self.callback is not None:
            self._call_back(progress)
        if not self.guided and pipeline._guidance_scale != 1:
            raise ValueError("guidance can not start later: the call began with guidance_scale=1, without its rows")
        self.warp.guidance_scale = pipeline._guidance_scale
        return not pipeline._interrupt

    def _call_back(self, progress: Progress) -> None:
        available = {
            "latents": lambda: progress.tokens,
            "counts": lambda: torch.tensor(progress.counts),  # known to the host already
            "drift": lambda: progress.drift,
        }
        tensors = {name: available[name]() for name in self.tensor_inputs}
        step = self.pipeline._num_timesteps - 1
        returned = self.callback(self.pipeline, step, min(progress.counts), tensors) or {}
        latents = returned.get("latents", progress.tokens)
        self.latents = None if latents is progress.tokens else self._checked(latents, progress.tokens)

    def _checked(self, latents: Tensor, tokens: Tensor) -> Tensor:
        if not isinstance(latents, Tensor) or latents.shape != tokens.shape or latents.dtype.is_floating_point:
            raise ValueError(
                f"the callback must return latents as token ids of shape {list(tokens.shape)}, got {latents!r}"
            )
        if latents.min() < 0 or latents.max() >= self.vocabulary:
            raise ValueError(f"the callback returned token ids outside 0 .. {self.vocabulary - 1}")
        return latents.to(tokens)
