"""Ctrl-C that lets finished work be saved: the first one asks, the second one insists."""

from __future__ import annotations

import signal
import threading


class StopRequest:
    """In this context the first Ctrl-C only sets ``asked``; from the second on it raises KeyboardInterrupt as usual.

    Outside the main thread, where signals can't be caught, Ctrl-C stays what it was.
    """

    def __init__(self):
        self.asked = False

    def __enter__(self) -> StopRequest:
        self._catching = threading.current_thread() is threading.main_thread()
        if self._catching:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number, frame) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_) -> None:
        if self._catching:
            signal.signal(signal.SIGINT, self._before)
