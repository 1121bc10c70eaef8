# SPDX-License-Identifier: Apache-2.0
"""Lets the user's interruption end compiled loops.

Python handles signals between its own instructions, so compiled code that loops asks now and then
(``poll`` of :mod:`intarsia_runtime.artifact.plan`). An exception that a handler raises inside of a
callback is lost; so once a run takes long, what arrives is noted, and handled when compiled code
has returned. Short runs leave the handlers alone: to change one is a system call.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

from .abi import PollCall

Handler: TypeAlias = "Callable[[int, FrameType | None], object]"

LONG = 0.05
"""Seconds from which on a run is long."""

_ENDING = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """What compiled loops of one program ask."""

    def __init__(self) -> None:
        self._arrived: int | None = None
        self._start: float | None = None
        self._handlers: dict[int, Handler] = {}
        self._poll = PollCall(self._goes_on)
        self.address = ctypes.cast(self._poll, ctypes.c_void_p).value or 0

    def _goes_on(self) -> int:
        """Return 0 if loops must end; so does ctypes if a handler raises on entry."""
        if self._arrived is not None:
            return 0
        if self._start is None:
            self._start = time.monotonic()
        elif not self._handlers and time.monotonic() - self._start > LONG:
            self._note_signals()
        return 1

    def _note_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._arrived = number

    def finish(self) -> None:
        """Handle what arrived while compiled code ran; called after each run.

        What the handlers raise, it raises: ``KeyboardInterrupt`` when the user interrupts.
        """
        self._start = None
        if not self._handlers:
            return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        arrived, self._arrived = self._arrived, None
        if arrived is not None:
            signal.raise_signal(arrived)
