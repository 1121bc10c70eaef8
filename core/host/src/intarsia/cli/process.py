# SPDX-License-Identifier: Apache-2.0
"""What a command has from whoever started it, and how it ends when it is told to.

Services, containers and ``>&-`` start programs without standard streams. The next file that is
opened then is standard output, and what is printed goes into it; Python has no stream to print to.
Who ignores the end of child processes leaves that to programs it starts: no end of one is told.

A command that is told to terminate ends as one that is interrupted: what it began is put away.
Without a handler the system ends the process where it is, and folders for temporary files stay, as
do halves of files beside those that they were to become.

An interrupt, and so a termination, is an exception wherever the main thread is. In a callback of
Python's importing, which holds the lock of all imports, it would only be printed, and threads that
import would wait for ever; so there, as in what removes a file or a destructor, it comes later.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType

from intarsia_runtime.guarded import UserInterrupt

_FINALIZER = ("__call__", weakref.__file__)
_DROPPING = (("cb", "<frozen importlib._bootstrap>"), ("_repeat", __file__), _FINALIZER)
_LATER = 0.01  # seconds
_HEEDED = (signal.SIGTERM, signal.SIGHUP) if os.name == "posix" else (signal.SIGTERM,)
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""Python's names of the standard streams in the order of their numbers, and how each is opened."""


def mend_inherited() -> None:
    """Give each closed standard stream the null device, and have the end of children told.

    To be called before anything opens a file.
    """
    for number in range(len(_STREAMS)):
        _fill(number)
    for name, mode in _STREAMS:
        if vars(sys)[name] is None:
            stream = open(os.devnull, mode, encoding="utf-8", errors="replace")  # noqa: SIM115
            setattr(sys, name, stream)
    if os.name == "posix":
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _fill(number: int) -> None:
    """Open the null device under a number that no file has, also for programs started from here."""
    try:
        os.fstat(number)
    except OSError:
        made = os.open(os.devnull, os.O_RDWR)
        if made == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(made, number)
            os.close(made)


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
    """Whether code is in ``_repeat``, a finalizer, or the callback of a lock of importing."""
    while frame and (frame.f_code.co_name, frame.f_code.co_filename) not in _DROPPING:
        frame = frame.f_back
    return frame is not None


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
