"""The pass over the window captured once per shape and replayed: on CUDA one launch instead of hundreds.

A captured pass finds everything where it was when it was captured. So a run keeps its storage, and images of the next
call are put into it. What is decided in Python (shapes, sampling settings, parts of the method) is what a capture is
known by.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor

from .one_pass import DecodingPass, RunPass

_ROOMS = 2  # runs whose storage is kept, with their key/value caches
_WRITTEN_FIRST = 2  # passes of a shape before it is captured: a compiled one may compile in both
_MOST_CAPTURES = 64  # of a room; sampling settings that change all the time would pile them up


class CudaGraphs:
    """Captures of one run: they share a pool of memory and a stream, and are never replayed at the same time."""

    device_types = ("cuda",)

    def __init__(self, device: torch.device):
        self.device = device
        with torch.cuda.device(device):
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Capture ``work``, which does not run. Returns what replays it, and its result, which that overwrites."""
        graph = torch.cuda.CUDAGraph()
        options = {"pool": self.pool, "stream": self.stream, "capture_error_mode": "thread_local"}
        with torch.cuda.device(self.device), torch.cuda.graph(graph, **options):
            result = work()
        return graph.replay, result


@dataclass
class _Room:
    """A run that keeps its storage, how often each shape was run, and the captures that know it."""

    run: DecodingPass
    graphs: object
    written: Counter = field(default_factory=Counter)
    captures: dict[tuple, tuple[Callable[[], None], Tensor]] = field(default_factory=dict)


class CapturedPass(RunPass):
    """Captures a pass per window, number of images and reach of attention, and replays it from then on.

    The first passes of every shape run as they are written, which fills what is kept between passes; the third is
    captured. Finished images stay in the batch until all are finished: another number of images would be another shape.

    Args:
        run_pass: what is captured: a pass as it is written (None), or compiled.
        graphs: class of the captures of a run, :class:`CudaGraphs` or one with its methods.
    """

    one_shape, bucket, shrinks = True, 512, False

    def __init__(self, run_pass: RunPass | None = None, graphs=CudaGraphs):
        self.run_pass, self.graphs = run_pass or RunPass(), graphs
        self.fuses, self.kind = self.run_pass.fuses, f"captured, {self.run_pass.kind}"
        self._rooms: OrderedDict[tuple, _Room] = OrderedDict()

    def check_device(self, device: torch.device) -> None:
        if device.type not in self.graphs.device_types:
            raise ValueError(
                f"captured passes need the model on a {self.graphs.device_types[0]} device, it is on {device}; move it "
                "there, or call disable_cuda_graphs()"
            )

    def check_drafter(self, drafter) -> None:
        self.run_pass.check_drafter(drafter)

    def alike(self, work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """``work`` captured at the first call with arguments of these shapes; later calls replay it on these."""
        work, captures, graphs = self.run_pass.alike(work), {}, {}

        def replayed(*arguments: Tensor) -> Tensor:
            device = arguments[0].device
            if device not in graphs:
                graphs[device] = self.graphs(device)
            shapes = tuple(argument.shape for argument in arguments)
            if shapes not in captures:
                for _ in range(_WRITTEN_FIRST):
                    work(*arguments)
                # a capture keeps nothing it reads
                captures[shapes] = (*graphs[device].record(lambda: work(*arguments)), arguments)
            replay, result, _ = captures[shapes]
            replay()
            return result

        return replayed

    def room_for(self, run: DecodingPass) -> DecodingPass | None:
        key = _key(run)
        room = self._rooms.get(key)
        if room is None or not room.run.session.has_room_for(run.session):
            self._rooms.pop(key, None)
            while len(self._rooms) >= _ROOMS:  # before the prompt runs: its cache takes their place
                self._rooms.popitem(last=False)
            return None
        self._rooms.move_to_end(key)
        room.run.warp = run.warp  # a callback may change it
        room.run.traces.clear()  # what they assume is checked in every call
        return room.run

    def settle(self, run: DecodingPass) -> None:
        self._rooms[_key(run)] = _Room(run, self.graphs(run.state.tokens.device))

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        room = self._room_of(run)
        shape = (length, run.limit, run.warp.settings)
        if room.written[shape] < _WRITTEN_FIRST:
            report = self.run_pass(run, length)
            room.written[shape] += 1  # not if it failed: what it was to fill may be missing
            return report
        if shape not in room.captures:
            if len(room.captures) == _MOST_CAPTURES:
                room.captures, room.graphs = {}, self.graphs(run.state.tokens.device)
            room.captures[shape] = room.graphs.record(lambda: self.run_pass(run, length))
        replay, report = room.captures[shape]
        replay()
        return report

    def _room_of(self, run: DecodingPass) -> _Room:
        """By the run itself: describing it in every pass would take longer than to launch one."""
        return next(room for room in self._rooms.values() if room.run is run)


def _key(run: DecodingPass) -> tuple:
    """Everything a capture depends on that stays the same over a run."""
    model, state = run.session.model, run.state
    weights = hash(tuple((w.data_ptr(), w.dtype) for w in chain(model.parameters(), model.buffers())))
    target = (id(model), weights, state.grid.rows, state.grid.columns, state.vocabulary)
    parts = (_known_as(part) for part in (run.drafter, run.relaxation, run.alignment_filter))
    return (*target, run.images, run.session.rows, len(state.maps), *parts)


def _known_as(part) -> tuple:
    """Its knobs, and the very object where it holds more than those, such as a table of neighbours."""
    tables = [value for name, value in vars(part).items() if name != "_internal_dict"] if part is not None else []
    return (repr(part), id(part) if any(value is not None for value in tables) else None)
