# SPDX-License-Identifier: Apache-2.0
"""Ends a command that is told to terminate as one that is interrupted: what it began is put away.

Without a handler the system ends the process where it is, and folders for temporary files stay, as
do halves of files beside those that they were to become.

An interrupt, and so a termination, is an exception wherever the main thread is. In a callback of
Python's importing, which holds the lock of all imports, it would only be printed, and threads that
import would wait for that lock for ever; so there it comes once more a little later. Where Python
drops an exception otherwise, as in a destructor, an interrupt comes once more after it was dropped.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from intarsia_runtime.guarded import UserInterrupt

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORTING = "<frozen importlib._bootstrap>"
_LATER = 0.01  # seconds
_HEEDED = (signal.SIGTERM, signal.SIGHUP) if os.name == "posix" else (signal.SIGTERM,)


class Termination:
    """Remembers the signal that ends the command.

    Attributes:
        number: The signal; 0 if none came.
    """

    def __init__(self) -> None:
        self.number = 0

    def heed(self) -> None:
        """Raise UserInterrupt in the main thread when the first such signal comes.

        A signal that is ignored already, as ``nohup`` has it, stays so.
        """
        for number in _HEEDED:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
            sys.unraisablehook = partial(_repeat, sys.unraisablehook)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if _drops_exceptions(frame):
            _send_later(number)
            return
        if number != signal.SIGINT:
            self.number = number
            for each in _HEEDED:  # one more would stop the putting away
                signal.signal(each, signal.SIG_IGN)
        raise UserInterrupt

    def pass_on(self) -> None:
        """End this process by the signal, if one came, so that whoever waits knows of it."""
        if self.number:
            signal.signal(self.number, signal.SIG_DFL)
            os.kill(os.getpid(), self.number)


def _drops_exceptions(frame: FrameType | None) -> bool:
    """Whether code is the callback of a lock that importing a module no longer needs."""
    code = None if frame is None else frame.f_code
    return code is not None and (code.co_name, code.co_filename) == ("cb", _IMPORTING)


def _repeat(
    otherwise: Callable[[sys.UnraisableHookArgs], object], dropped: sys.UnraisableHookArgs
) -> None:
    if isinstance(dropped.exc_value, UserInterrupt):
        _send_later(signal.SIGINT)
    else:
        otherwise(dropped)


def _send_later(number: int) -> None:
    timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
