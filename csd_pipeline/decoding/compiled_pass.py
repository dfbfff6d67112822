"""The pass over the window compiled by torch.compile: the same decisions in fewer, fused kernels."""

from __future__ import annotations

from types import FunctionType

import torch
from torch import Tensor

from .one_pass import DecodingPass, window_pass


class CompiledPass:
    """:func:`window_pass`, traced whole and compiled anew for every method, window and number of images.

    Prompts of other lengths use what is compiled. Every pass drafts a whole window, so that all have one shape.

    Args:
        options: of torch.compile, such as ``backend`` and ``mode``.
    """

    def __init__(self, **options):
        self.options = {"fullgraph": True} | options
        self._compiled: dict[tuple, object] = {}
        self._last: tuple[DecodingPass, int, tuple] | None = None

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        key = self._key(run, length)
        if key not in self._compiled:
            # torch.compile keeps few variants of one code object; a method of its own gets one of its own
            copy = FunctionType(window_pass.__code__.replace(), window_pass.__globals__, window_pass.__name__)
            self._compiled[key] = torch.compile(copy, **self.options)
        return self._compiled[key](run, length)

    def _key(self, run: DecodingPass, length: int) -> tuple:
        images = len(run.images)
        if self._last is None or self._last[0] is not run or self._last[1] != images:
            method = (run.drafter, run.relaxation, run.alignment_filter, run.warp)
            self._last = (run, images, (length, images, run.session.rows, run.recorder.record_maps, *map(repr, method)))
        return self._last[2]
