# SPDX-License-Identifier: Apache-2.0
"""Lets the user's interruption end compiled loops.

Python handles signals between its own instructions, so compiled code that loops asks now and then
(``poll`` of :mod:`intarsia_runtime.artifact.plan`). An exception that a handler raises inside of a
callback would be lost; so what arrives meanwhile is noted, and handled when compiled code has
returned.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

from .abi import PollCall

_ENDING = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """What compiled loops of one program ask."""

    def __init__(self) -> None:
        self._arrived: int | None = None
        self._poll = PollCall(self._goes_on)
        self.address = ctypes.cast(self._poll, ctypes.c_void_p).value or 0

    def _goes_on(self) -> int:
        return 1 if self._arrived is None else 0

    def _note(self, number: int, _frame: object) -> None:
        self._arrived = number

    @contextmanager
    def watched(self) -> Generator[None]:
        """Let signals that end a program end compiled loops in the block.

        What their handlers raise, it raises: ``KeyboardInterrupt`` when the user interrupts.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.getsignal(number) for number in _ENDING}
        noted = {number: handler for number, handler in handlers.items() if callable(handler)}
        for number in noted:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in noted.items():
                signal.signal(number, handler)
            arrived, self._arrived = self._arrived, None
        if arrived is not None:
            signal.raise_signal(arrived)
