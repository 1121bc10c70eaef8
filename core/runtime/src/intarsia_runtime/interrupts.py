# SPDX-License-Identifier: Apache-2.0
"""Lets the user's interruption end compiled loops.

Python handles signals between its own instructions, so compiled code that loops asks now and then
(``poll`` of :mod:`intarsia_runtime.artifact.plan`). Once a run takes long, what arrives is noted,
and handled when compiled code has returned. Short runs leave the handlers alone: to change one
takes 4 µs. An exception that a handler raises inside of a callback reaches nobody but
``sys.unraisablehook``, and what ctypes then returns is not defined; so it is kept there, by a
function of C: one of Python could be interrupted once more, and both would be lost.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

from .abi import PollCall

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

Handler: TypeAlias = "Callable[[int, FrameType | None], object]"

LONG = 0.05
"""Seconds from which on a run is long."""

_ENDING = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """What compiled loops of one program ask."""

    def __init__(self) -> None:
        self._arrived: int | None = None
        self._unraised: list[UnraisableHookArgs] = []
        self._hook: Callable[[UnraisableHookArgs], object] | None = None
        self._start: float | None = None
        self._handlers: dict[int, Handler] = {}
        self._poll = PollCall(self._goes_on)
        self.address = ctypes.cast(self._poll, ctypes.c_void_p).value or 0

    def begin(self) -> None:
        """Keep what a handler raises in a callback; called before each run."""
        if self._hook is None and threading.current_thread() is threading.main_thread():
            self._unraised = []
            self._hook, sys.unraisablehook = sys.unraisablehook, self._unraised.append

    def _goes_on(self) -> int:
        """Return 0 if loops must end."""
        if self._arrived is not None or any(map(self._is_lost, self._unraised)):
            return 0
        if self._start is None:
            self._start = time.monotonic()
        elif not self._handlers and time.monotonic() - self._start > LONG:
            self.note_signals()
        return 1

    @staticmethod
    def _is_lost(unraised: UnraisableHookArgs) -> bool:
        """Whether a handler raised it while compiled code asked whether to go on."""
        raised = unraised.exc_traceback
        return raised is not None and raised.tb_frame.f_code is Interrupts._goes_on.__code__

    def note_signals(self) -> None:
        """Note what arrives from now on, instead of handling it; the main thread alone can."""
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._arrived = number

    def complete(self) -> None:
        """Handle what arrived while compiled code ran; called after each run.

        What the handlers raise, it raises: ``KeyboardInterrupt`` when the user interrupts.
        """
        self._start = None
        if self._hook is not None:
            sys.unraisablehook, self._hook = self._hook, None
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        arrived, self._arrived = self._arrived, None
        unraised, self._unraised = self._unraised, []
        for each in unraised:
            if self._is_lost(each) and each.exc_value is not None:
                raise each.exc_value
            sys.unraisablehook(each)
        if arrived is not None:
            signal.raise_signal(arrived)


@contextmanager
def interrupts_later() -> Generator[None]:
    """Handle the user's interruption behind a block that an exception must not leave halfway."""
    interrupts = Interrupts()
    interrupts.note_signals()
    try:
        yield
    finally:
        interrupts.complete()
