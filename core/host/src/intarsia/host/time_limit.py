# SPDX-License-Identifier: Apache-2.0
"""Ends Python code that takes too long, where the system has an alarm clock."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from intarsia_runtime.errors import UsageError
from intarsia_runtime.guarded import OutOfTime

LIMIT = "INTARSIA_PLUGIN_TIMEOUT"
"""Environment variable: seconds that a plugin's import and each quick hook may take."""

DEFAULT_LIMIT = 60.0


def time_limit_of(env: Mapping[str, str]) -> float:
    """Seconds that a plugin gets.

    Raises:
        UsageError: The setting is no positive number.
    """
    text = env.get(LIMIT, "").strip()
    if not text:
        return DEFAULT_LIMIT
    with suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise UsageError(f"{LIMIT} is {text[:40]!r}, not a number of seconds", hint=f"{LIMIT}=60")


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Raise in the block when it takes longer.

    Does nothing in a thread other than the main one, nor where someone else has set the alarm. Code
    that never comes back from C is not interrupted.

    Raises:
        OutOfTime: The time is over.
    """
    if not _free():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _free() -> bool:
    """Whether this thread gets signals and nobody uses the alarm."""
    if threading.current_thread() is not threading.main_thread():
        return False
    try:
        handler = signal.getsignal(signal.SIGALRM)
        return handler is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    except AttributeError:  # a system without alarms
        return False
