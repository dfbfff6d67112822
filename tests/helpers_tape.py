"""What a CUDA graph does, on a CPU: operations recorded once, replayed on the very same storage, without any Python."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from csd_pipeline.decoding import CapturedPass


class Tape(TorchDispatchMode):
    """One recorded pass.

    While it records, no result can be read by the host; afterwards everything is as it was before. What the recorded
    work made itself is spoiled, as nothing was computed yet. What was there before is only read as long as somebody
    else keeps it.
    """

    HOST_READS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero")
    replays = 0  # of all tapes

    def __init__(self):
        super().__init__()
        self._calls: list[tuple] = []  # operator, arguments, storage of the result that has to be written
        self._made: set[int] = set()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def record(self, work):
        with self:
            result = work()
        for stored, value in self._before.values():
            stored.copy_(value)
        for _, _, _, results in self._calls:
            for made in results:
                made.fill_(torch.nan if made.is_floating_point() else 99)
        self._before.clear()
        self._calls = [(call[0], *tree_map(self._unless_made, call[1:3]), call[3]) for call in self._calls]
        return result

    def _unless_made(self, value):
        if not isinstance(value, Tensor) or value.untyped_storage().data_ptr() in self._made:
            return value
        return Elsewhere.of(value)

    def replay(self) -> None:
        Tape.replays += 1
        for operator, arguments, keywords, results in self._calls:
            arguments, keywords = tree_map(_found, (arguments, keywords))
            again = operator(*arguments, **keywords)
            for made, value in zip(results, _fresh(again, operator, arguments), strict=True):
                made.copy_(value)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        assert not name.startswith(self.HOST_READS), f"{name} makes the host wait"
        copies = [a for a in tree_iter((args, kwargs)) if isinstance(a, Tensor) and a.device.type != "cpu"]
        assert not copies and name != "lift_fresh", "host data in a captured pass"
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._save(value)
            assert "out" not in kwargs
        result = func(*args, **kwargs)
        results = _fresh(result, func, args)
        self._made |= {made.untyped_storage().data_ptr() for made in results}
        # the arguments keep their storage alive, so that no address is used twice
        self._calls.append((func, tree_map(lambda a: a, args), kwargs, results))
        return result

    def _save(self, value: Tensor) -> None:
        address = value.untyped_storage().data_ptr()
        if address not in self._made and address not in self._before:
            whole = value.new_empty(0).set_(value.untyped_storage())
            self._before[address] = (whole, whole.clone())


@dataclass
class Elsewhere:
    """A tensor in storage that the recorded work did not make, and does not keep."""

    storage: StorageWeakRef
    like: tuple
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Elsewhere:
        like = (tensor.storage_offset(), tensor.shape, tensor.stride())
        return cls(StorageWeakRef(tensor.untyped_storage()), like, tensor.dtype)

    def found(self) -> Tensor:
        storage = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        assert storage is not None, f"a capture reads memory that nobody keeps: {self.dtype} {self.like}"
        return torch.empty(0, dtype=self.dtype).set_(storage, *self.like)


def _found(value):
    return value.found() if isinstance(value, Elsewhere) else value


def _fresh(result, func, args) -> list[Tensor]:
    """The tensors of a result that are neither views nor arguments."""
    if func._schema.is_mutable or func.is_view:
        return []
    given = {a.untyped_storage().data_ptr() for a in tree_iter(args) if isinstance(a, Tensor)}
    made = [t for t in tree_iter(result) if isinstance(t, Tensor)]
    return [t for t in made if t.untyped_storage().data_ptr() not in given or t.numel() == 0]


class Tapes:
    """The tapes of a run, with the methods of :class:`csd_pipeline.decoding.captured_pass.CudaGraphs`."""

    device_types = ("cpu",)

    def __init__(self, device):
        assert device.type == "cpu"

    def record(self, work):
        tape = Tape()
        result = tape.record(work)
        return tape.replay, result


def captured() -> CapturedPass:
    """Captured passes on tape."""
    return CapturedPass(graphs=Tapes)
