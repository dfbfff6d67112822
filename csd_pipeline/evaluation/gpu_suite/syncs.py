"""Does a pass make the host wait for the device? The loop reads once per pass, but outside of it."""

from __future__ import annotations

import torch
from torch import Tensor

from csd_pipeline.decoding import RunPass, WatchedPass

from .image import draw
from .random_target import RandomTarget

CLEAN = "clean"
_UNWATCHED, _WATCHED = 4, 16  # passes: the first ones fill what is kept, and are captured


class NoWaiting(WatchedPass):
    """Runs passes under torch's debug mode that turns every wait for the device into an error.

    Args:
        run_pass: what runs them.
    """

    def __init__(self, run_pass: RunPass):
        super().__init__(run_pass)
        self.passes = 0

    def __call__(self, run, length: int) -> Tensor:
        self.passes += 1
        if self.passes <= _UNWATCHED:
            return super().__call__(run, length)
        torch.cuda.set_sync_debug_mode("error")
        try:
            return super().__call__(run, length)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def find_syncs(target: RandomTarget, parts: dict, run_pass: RunPass) -> str:
    """``"clean"``, or the first line of what torch says about the first wait of the passes 5 to 20."""
    watched, passes = NoWaiting(run_pass), _UNWATCHED + _WATCHED
    try:
        while watched.passes < passes:  # an image may end earlier
            draw(target, parts, watched, on_pass=lambda progress: watched.passes < passes)
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return str(error).splitlines()[0]
    return CLEAN
