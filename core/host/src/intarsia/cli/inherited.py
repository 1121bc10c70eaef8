# SPDX-License-Identifier: Apache-2.0
"""What this process has from whoever started it, made what every program may rely on.

Services, containers and ``>&-`` start programs without standard streams. The next file that is
opened then is standard output, and what is printed goes into it; and Python has no stream to print
to. Who ignores the end of child processes leaves that to the programs it starts: they are never
told that a child ended, and not how.
"""

from __future__ import annotations

import os
import signal
import sys

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
