# SPDX-License-Identifier: Apache-2.0
"""Keeps what belongs to the process as it was while code of a plugin runs."""

from __future__ import annotations

import contextlib
import functools
import locale
import os
import signal
import sys
import threading
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

_HANDLERS = (signal.SIGINT, signal.SIGTERM)
_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def quiet_stdout() -> Generator[None]:
    """Send to stderr what is written on stdout, also by C code: stdout belongs to ``--json``."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed: there is no stream
        sys.stdout.flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # closed
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    try:
        with contextlib.suppress(OSError):
            os.dup2(_STDERR, _STDOUT)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _flush_c()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _flush_c() -> None:
    """Write what C code has printed and not yet written."""
    library = _c_library()
    if library is not None:
        library.fflush(None)


@functools.cache
def _c_library() -> ctypes.CDLL | None:
    import ctypes  # listing plugins calls none

    try:
        library = ctypes.CDLL(None)
        library.fflush  # noqa: B018  looks the function up
    except (OSError, TypeError, AttributeError):  # a system where C is not part of the program
        return None
    return library


@contextlib.contextmanager
def undisturbed() -> Generator[None]:
    """Put back what an import may change and others rely on.

    That is: the handlers of interruption and termination, warnings filters, NumPy's floating-point
    errors if NumPy is loaded, the locale and the working folder. Changes to ``sys.path`` stay,
    since what is imported later may need them.
    """
    handlers = {number: signal.getsignal(number) for number in _HANDLERS}
    words, folder = locale.setlocale(locale.LC_ALL), working_folder()
    try:
        with warnings.catch_warnings(), _float_errors():
            yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None and signal.getsignal(number) is not handler:
                    signal.signal(number, handler)
        if locale.setlocale(locale.LC_ALL) != words:
            locale.setlocale(locale.LC_ALL, words)
        if folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(folder)


def working_folder() -> Path | None:
    """The folder that relative paths begin at; ``None`` if somebody has removed it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _float_errors() -> contextlib.AbstractContextManager[object]:
    """Keeps NumPy's settings; NumPy is not loaded for that."""
    if "numpy" not in sys.modules:
        return contextlib.nullcontext()
    import numpy as np

    return np.errstate()
