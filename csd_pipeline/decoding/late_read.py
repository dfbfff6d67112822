"""What a pass reports, on its way to the host: on a GPU read late, so that the host can launch further passes."""

from __future__ import annotations

import torch
from torch import Tensor

# Passes a GPU may be ahead of the host. An image costs up to as many forwards after it is finished.
_UNREAD_ON_CUDA = 2


def unread_passes(device: torch.device) -> int:
    """How many passes the host launches without having read what they did; elsewhere than on CUDA it always waits."""
    return _UNREAD_ON_CUDA if device.type == "cuda" else 0


class LateRead:
    """A report [B + 1] of a pass.

    Args:
        report: of the pass; may be overwritten by the next one.
        images: whose it is, by slot; None where a finished image stays in its slot.
        late: further passes may be launched before it is read: on CUDA it is copied to pinned memory behind the pass.
            Otherwise it is read here, which waits for the pass.
    """

    def __init__(self, report: Tensor, images: list[int | None], late: bool):
        self.images, self._numbers, self._done = list(images), None, None
        if not late:
            self._numbers = report.tolist()
        elif report.device.type == "cuda":
            self._copy_behind(report)
        else:
            self._host = report.clone()

    def _copy_behind(self, report: Tensor) -> None:
        self._host = torch.empty(report.shape, pin_memory=True)
        self._host.copy_(report, non_blocking=True)
        self._done = torch.cuda.Event()
        self._done.record(torch.cuda.current_stream(report.device))

    def wait(self) -> tuple[list[tuple[int, int]], float]:
        """Every image and its committed tokens, and the number that is finite if the laws were; waits for the pass."""
        if self._done is not None:
            self._done.synchronize()
        if self._numbers is None:
            self._numbers = self._host.tolist()
        *counts, sound = self._numbers
        pairs = zip(self.images, counts, strict=True)
        return [(image, int(count)) for image, count in pairs if image is not None], sound
