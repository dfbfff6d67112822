"""The pass over the window captured once per shape and replayed: on CUDA one launch instead of hundreds.

A captured pass finds everything where it was when it was captured. So a run keeps its storage, and images of the next
call are put into it. What is decided in Python (shapes, sampling settings, parts of the method) is what a capture is
known by.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import astuple, dataclass, field

import torch
from torch import Tensor

from .one_pass import DecodingPass, RunPass

_ROOMS = 2  # runs whose storage is kept, with their key/value caches


class CudaGraph:
    """One captured pass. ``pool`` is the memory it shares with other captures that never run at the same time."""

    def __init__(self, pool):
        self.graph, self.pool = torch.cuda.CUDAGraph(), pool

    def record(self, work: Callable[[], Tensor]) -> Tensor:
        """Capture ``work``, which does not run; its result is overwritten by every :meth:`replay`."""
        with torch.cuda.graph(self.graph, pool=self.pool, capture_error_mode="thread_local"):
            return work()

    def replay(self) -> None:
        self.graph.replay()

    @staticmethod
    def new_pool():
        return torch.cuda.graph_pool_handle()


@dataclass
class _Room:
    """A run that keeps its storage, and the captures that know it."""

    run: DecodingPass
    captures: dict[tuple, tuple[object, Tensor] | None] = field(default_factory=dict)


class CapturedPass(RunPass):
    """Captures a pass per window, number of images and reach of attention, and replays it from then on.

    The first pass of every shape runs as it is written, which fills what is kept between passes; the second is
    captured. Finished images stay in the batch until all are finished: another number of images would be another shape.

    Args:
        run_pass: what is captured: a pass as it is written (None), or compiled.
        graph: class of a capture, :class:`CudaGraph` or one with its methods.
    """

    one_shape, bucket, shrinks = True, 512, False

    def __init__(self, run_pass: RunPass | None = None, graph=CudaGraph):
        self.run_pass, self.graph = run_pass or RunPass(), graph
        self._rooms: OrderedDict[tuple, _Room] = OrderedDict()
        self._pool = None

    def room_for(self, run: DecodingPass) -> DecodingPass | None:
        room = self._rooms.get(_key(run))
        if room is None or not room.run.session.has_room_for(run.session):
            return None
        self._rooms.move_to_end(_key(run))
        room.run.warp = run.warp  # a callback may change it
        return room.run

    def settle(self, run: DecodingPass) -> None:
        self._rooms[_key(run)] = _Room(run)
        self._rooms.move_to_end(_key(run))
        while len(self._rooms) > _ROOMS:
            self._rooms.popitem(last=False)

    def __call__(self, run: DecodingPass, length: int) -> Tensor:
        captures = self._room_of(run).captures
        shape = (length, run.limit, astuple(run.warp))
        if shape not in captures:
            captures[shape] = None
            return self.run_pass(run, length)
        if captures[shape] is None:
            if self._pool is None:
                self._pool = self.graph.new_pool()
            capture = self.graph(self._pool)
            captures[shape] = (capture, capture.record(lambda: self.run_pass(run, length)))
        capture, report = captures[shape]
        capture.replay()
        return report

    def _room_of(self, run: DecodingPass) -> _Room:
        """By the run itself: describing it in every pass would take longer than to launch one."""
        return next(room for room in self._rooms.values() if room.run is run)


def _key(run: DecodingPass) -> tuple:
    """Everything a capture depends on that stays the same over a run."""
    model, state = run.session.model, run.state
    weights = next(model.parameters())
    target = (id(model), weights.data_ptr(), weights.dtype, state.grid.rows, state.grid.columns, state.vocabulary)
    parts = (_known_as(part) for part in (run.drafter, run.relaxation, run.alignment_filter))
    return (*target, run.images, run.session.rows, len(state.maps), *parts)


def _known_as(part) -> tuple:
    """Its knobs, and the very object where it holds more than those, such as a table of neighbours."""
    tables = [value for name, value in vars(part).items() if name != "_internal_dict"] if part is not None else []
    return (repr(part), id(part) if any(value is not None for value in tables) else None)
