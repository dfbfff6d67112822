"""One list of pictures drawn by several processes, as `accelerate launch` starts them."""

from __future__ import annotations

import os
from datetime import timedelta

from .jobs import Image

_PATIENCE = timedelta(days=30)  # of the processes that are done for the others
_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE")  # set by torchrun and accelerate, or by mpirun


class Processes:
    """The processes of a job; a process on its own is the main one of one.

    Args:
        device: where this process computes; a bare "cuda" becomes the GPU that belongs to this process.

    Raises:
        ValueError: a device several processes can not share.
    """

    def __init__(self, device: str):
        self.device, self._state = device, None
        wanted = next((int(os.environ[name]) for name in _COUNTS if os.environ.get(name, "").isdecimal()), 1)
        if wanted == 1:
            return
        from accelerate import PartialState

        self._state = PartialState(cpu=device == "cpu", timeout=_PATIENCE)
        if self._state.num_processes != wanted:
            raise ValueError(
                f"{wanted} processes were started, and {device} lets them not work together; "
                "use --device cuda or --device cpu, or start one process"
            )
        if device == "cuda":
            self.device = f"cuda:{self._state.local_process_index}"

    @property
    def several(self) -> bool:
        return self._state is not None

    @property
    def main(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self._state is None or self._state.is_main_process

    @property
    def alone(self) -> bool:
        return self._state is None

    def share(self, images: list[Image]) -> list[Image]:
        """The part of the main process' list that this process draws; every picture keeps its seed and number."""
        if self._state is None:
            return images
        from accelerate.utils import broadcast_object_list

        images = broadcast_object_list([images])[0]  # a random seed is drawn once, standard input is read once
        with self._state.split_between_processes(images) as part:
            return part

    def gather(self, entries: list) -> list:
        """The entries of all processes, in the order of the processes. Every process has to call it."""
        if self._state is None:
            return entries
        from accelerate.utils import gather_object

        return gather_object(entries)

    def leave(self) -> None:
        """Nothing more to exchange."""
        if self._state is not None:
            self._state.destroy_process_group()
