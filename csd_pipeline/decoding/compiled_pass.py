"""The pass over the window compiled by torch.compile: the same decisions in fewer, fused kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import astuple
from types import FunctionType

import torch
from torch import Tensor

from .one_pass import DecodingPass, RunPass, window_pass

_STANCE = getattr(torch.compiler, "set_stance", None)  # torch 2.6
_CAN_SKIP = _STANCE is not None and "skip_guard_eval_unsafe" in inspect.signature(_STANCE).parameters


def checked_once(run: DecodingPass, shape: tuple, call: Callable[[], Tensor]) -> Tensor:
    """Call something compiled that works on ``run``.

    Before every call torch.compile checks, attribute by attribute, that model and run are as they were traced. Once a
    call has gone through, that holds for all calls within the run of the same shape and settings, and checking it takes
    as long as a tenth of a small model's forward: it is left out.
    """
    if shape in run.checked:
        with _STANCE("default", skip_guard_eval_unsafe=True) if _CAN_SKIP else nullcontext():
            return call()
    result = call()
    run.checked.add(shape)
    return result


class CompiledPass(RunPass):
    """:func:`window_pass`, traced whole and compiled anew for every method, window and number of images.

    Prompts of other lengths use what is compiled. Every pass drafts a whole window, and finished images stay in the
    batch until all are finished, so that all passes have one shape: a batch of eight would be compiled eight times.

    Args:
        options: of torch.compile, such as ``backend`` and ``mode``.
    """

    one_shape, shrinks, fuses = True, False, True

    def __init__(self, **options):
        self.options = {"fullgraph": True} | options
        self._compiled: dict[tuple, object] = {}

    def check_drafter(self, drafter) -> None:
        if drafter.extra_tokens:
            raise ValueError("a compiled pass takes no tree of drafts; use tree_depth=0, or do not compile")

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        self.check_drafter(run.drafter)
        key = self._key(run, length)
        if key not in self._compiled:
            # torch.compile keeps few variants of one code object; a method of its own gets one of its own
            copy = FunctionType(window_pass.__code__.replace(), window_pass.__globals__, window_pass.__name__)
            self._compiled[key] = torch.compile(copy, **self.options)
        compiled, shape = self._compiled[key], ("pass", length, run.images, run.limit, astuple(run.warp))
        return checked_once(run, shape, lambda: compiled(run, length))

    def _key(self, run: DecodingPass, length: int) -> tuple:
        """Kept on the run, not here: this object outlives the run and its cache."""
        if run.traced_as is None or run.traced_as[1] != run.images:
            method = map(repr, (run.drafter, run.relaxation, run.alignment_filter))
            run.traced_as = (length, run.images, run.session.rows, len(run.state.maps), *method)
        return run.traced_as
