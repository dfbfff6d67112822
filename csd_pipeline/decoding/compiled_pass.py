"""The pass over the window compiled by torch.compile: the same decisions in fewer, fused kernels."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, SimpleNamespace

import torch
from torch import Tensor

from .one_pass import DecodingPass, RunPass, window_pass


class CompiledFunction:
    """A function of a run by torch.compile, whose traces are checked once per run instead of at every call.

    Before every call torch.compile looks for a trace whose assumptions hold, attribute by attribute of model and run.
    Within a run they hold for all calls of the same shape and settings, and looking costs a share of a small model's
    forward. So what was found is called directly. What else a callback changes during an image, such as the knobs of a
    rule, is not seen before the next image.

    Args:
        function: traced whole.
        options: of torch.compile.
    """

    def __init__(self, function: Callable[..., Tensor], options: dict):
        # torch.compile keeps few variants of one code object; a function of its own gets one of its own
        self._function = self._of(function.__code__.replace(), function)
        self._compiled = torch.compile(self._function, **options)
        # CUDA graphs of torch.compile itself count its calls: what is called directly would never give memory back
        self._replays = "mode" in options or options.get("options", {}).get("triton.cudagraphs", False)

    def __call__(self, run: DecodingPass, settings: tuple, *arguments) -> Tensor:
        """``function(*arguments)``; ``settings`` is all they depend on that may change within ``run``."""
        if self._replays:
            return self._compiled(*arguments)
        key = (self, settings)
        if key not in run.traces:
            trace = self._trace(arguments)
            if trace is None:
                return self._compiled(*arguments)
            run.traces[key] = trace
        return run.traces[key](*arguments)

    def _trace(self, arguments: tuple) -> Callable[..., Tensor] | None:
        """The trace that holds for the arguments, None if there is none yet or this torch does not tell."""
        code, cells = self._function.__code__, self._function.__closure__ or ()
        given = dict(zip(code.co_varnames, arguments, strict=False))
        given |= {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}
        traces = getattr(torch._dynamo.eval_frame, "_debug_get_cache_entry_list", lambda code: [])
        for entry in traces(code):
            if hasattr(entry, "guard_manager") and entry.guard_manager.check(given):
                return self._of(entry.code, self._function)
        return None

    @staticmethod
    def _of(code: CodeType, function: FunctionType) -> FunctionType:
        """``function`` with other code."""
        return FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


class CompiledPass(RunPass):
    """:func:`window_pass`, traced whole and compiled anew for every method, window and number of images.

    Prompts of other lengths use what is compiled. Every pass drafts a whole window, and finished images stay in the
    batch until all are finished, so that all passes have one shape: a batch of eight would be compiled eight times.

    Args:
        options: of torch.compile, such as ``backend`` and ``mode``. Without these two the generated code leaves out
            checks of its own sizes and strides, which cost a share of a small model's pass.
    """

    one_shape, shrinks, fuses = True, False, True

    def __init__(self, **options):
        self.options = {"fullgraph": True} | options
        if not {"backend", "mode", "options"} & options.keys():
            self.options["options"] = {"size_asserts": False}
        self._compiled: dict[tuple, CompiledFunction] = {}

    @property
    def kind(self) -> str:
        return f"compiled with {self.options}"

    def alike(self, work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """``work`` compiled; sizes that differ between calls are compiled as such, not each by itself."""
        function, run = CompiledFunction(work, self.options), SimpleNamespace(traces={})
        return lambda *arguments: function(run, tuple(argument.shape for argument in arguments), *arguments)

    def check_drafter(self, drafter) -> None:
        if drafter.extra_tokens:
            raise ValueError("a compiled pass takes no tree of drafts; use tree_depth=0, or do not compile")

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        key = self._key(run, length)
        if key not in self._compiled:
            self.check_drafter(run.drafter)
            self._compiled[key] = CompiledFunction(window_pass, self.options)
        return self._compiled[key](run, (run.limit, run.warp.settings), run, length)

    def _key(self, run: DecodingPass, length: int) -> tuple:
        """Kept on the run, not here: this object outlives the run and its cache."""
        if run.traced_as is None or run.traced_as[1] != run.images:
            method = map(repr, (run.drafter, run.relaxation, run.alignment_filter))
            run.traced_as = (length, run.images, run.session.rows, len(run.state.maps), *method)
        return run.traced_as
