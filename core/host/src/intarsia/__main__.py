# SPDX-License-Identifier: Apache-2.0
"""The program: ``python -m intarsia``, and what the script ``intarsia`` calls."""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import suppress

_INTERRUPTED = 130
_RESOURCE = 8
_BLAS_WAIT = ("OPENBLAS_THREAD_TIMEOUT", "18")
"""For 2**18 cycles, 0.1 ms, the threads of NumPy's OpenBLAS wait actively for work.

Unless told so they do for 2**26, which keeps a processor busy for 0.1 s after NumPy is imported.
"""
_OBJECTS = 200_000
"""Objects made between two searches for garbage.

Most live until the command ends; to search after every 700 takes 9 % of compiling.
"""


def run() -> int:
    """Run the command line and return its exit code, also when interrupted while importing it."""
    gc.set_threshold(_OBJECTS)
    os.environ.setdefault(*_BLAS_WAIT)
    note = termination = None
    try:
        from intarsia_ir.budget import watched

        # An interrupt while importing is like any other.
        from .cli.process import Termination, mend_inherited
        from .cli.supervise import supervise

        mend_inherited()
        supervised = supervise(sys.argv[1:])
        note = supervised.note
        if supervised.code is not None:
            return supervised.code
        termination = Termination()
        termination.heed()
        from .cli.main import main

        with watched(None if note is None else note.watch):
            code = main(note=note.write if note is not None else None)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        code = _INTERRUPTED
    if termination is not None and code != _RESOURCE:
        termination.pass_on()
    if note is not None:
        note.complete()
    gc.freeze()  # the process ends: searching all its objects once more takes 0.1 s
    _leave_threads(code)
    return code


def _leave_threads(code: int) -> None:
    """End the process at once if a plugin's thread would keep it from ending."""
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    if threads == [threading.main_thread()]:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(run())
