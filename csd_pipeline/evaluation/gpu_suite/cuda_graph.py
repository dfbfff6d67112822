"""A call as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

_BEFORE = 3  # calls on a side stream first, which fill what libraries and the loop keep between calls


class CapturedCall:
    """Replays ``call``, which must not read the device; its arguments stay where they were."""

    def __init__(self, call: Callable[[], object]):
        self.call = call  # a graph does not keep the tensors it reads
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_BEFORE):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            call()

    def __call__(self) -> None:
        self.graph.replay()
