# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a child process, so that a crash of native code becomes a message.

What a plugin raises can be caught; a segmentation fault in its native code cannot. Commands that
run code of plugins or of models therefore run in a fork of this process, made before anything large
is loaded. The parent does nothing but wait; it passes signals on that were sent to it alone.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from mmap import mmap

from msgspec import Struct

from intarsia_ir.budget import memory_in_use

COMMANDS = frozenset({"compile", "explain", "run"})
"""Commands that run code of plugins, or what it compiled."""

SKIP = "INTARSIA_NO_PROBE"
"""Environment variable: set to 1, plugins run in the first process."""

_CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
_PLUGIN_FAILED = 5
_INTERRUPTED = 130
_SIGNALLED = 128  # shells add this to the number
_GRACE = 5.0  # seconds that a child may take to put away what it began
_LOOK = 0.25  # seconds between two looks at the limits
_SIZE = 4096
_LIMITS = struct.Struct("=dq")  # behind the text, before the last byte
_TEXT = _SIZE - 1 - _LIMITS.size
_LATE = 3.0  # seconds behind a deadline at which a process counts as one that does not ask
_LARGE = 1.25  # times its limit of memory, likewise
_RESOURCE = 8
_PARENT_ENDS = 1  # PR_SET_PDEATHSIG


class Note(Struct, frozen=True):
    """Memory that both processes see: which hook of which plugin is being asked."""

    memory: mmap

    def write(self, line: str) -> None:
        """Take a line of the tracing of hooks."""
        data = line.encode(errors="replace")[: _TEXT - 1]
        self.memory[: len(data) + 1] = data + b"\0"

    def read(self) -> str:
        """The last line."""
        return self.memory[:_TEXT].partition(b"\0")[0].decode(errors="replace")

    def watch(self, deadline: float, memory: int) -> None:
        """Say when the process is to be ended: a time of the monotonic clock, and bytes; or 0."""
        _LIMITS.pack_into(self.memory, _TEXT, deadline, memory)

    @property
    def is_late(self) -> bool:
        """Whether the process is well behind its deadline."""
        deadline, _ = _LIMITS.unpack_from(self.memory, _TEXT)
        return 0 < deadline < time.monotonic() - _LATE

    def is_large(self, process: int) -> bool:
        """Whether the process, by its id, holds well more memory than it may."""
        _, limit = _LIMITS.unpack_from(self.memory, _TEXT)
        return 0 < limit * _LARGE < memory_in_use(process)

    def complete(self) -> None:
        """Say that the command came to its own end: an exit code alone says nothing."""
        self.memory[_SIZE - 1] = 1

    @property
    def completed(self) -> bool:
        """Whether it did."""
        return self.memory[_SIZE - 1] == 1


class Supervised(Struct, frozen=True):
    """What to do after :func:`supervise`.

    Attributes:
        code: The exit code of the command, which has ended; ``None`` in the process that runs it.
        note: Where that process says what it asks; ``None`` if nobody waits for it.
    """

    code: int | None = None
    note: Note | None = None


def supervise(arguments: Sequence[str]) -> Supervised:
    """Go on in a child process if the command runs code of plugins; the parent waits for it."""
    wanted = COMMANDS & set(arguments)
    if sys.platform != "linux" or not wanted or os.environ.get(SKIP, "").strip() == "1":
        return Supervised()
    note = Note(mmap(-1, _SIZE))
    heeded = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*heeded, signal.SIGALRM})
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError:  # no process left: the command can still try
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return Supervised()
    if child == 0:
        _end_with(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return Supervised(note=note)
    return Supervised(code=_wait(child, heeded, note))


def _end_with(parent: int) -> None:
    """End this process when its parent is killed."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_ENDS, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # killed before that was asked for
        os.kill(os.getpid(), signal.SIGKILL)


def _wait(child: int, heeded: set[signal.Signals], note: Note) -> int:
    """Wait for the child; returns the exit code that the parent ends with.

    A child that is told to terminate, but is busy in native code, is killed after some seconds.
    """
    last, interrupted, late = 0, False, False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        # What sigtimedwait returns after a stop (Ctrl-Z) that outlasts its time is no signal.
        signal.sigtimedwait({signal.SIGALRM}, 0)
        signal.setitimer(signal.ITIMER_REAL, _GRACE if last else _LOOK)
        found = signal.sigwaitinfo({*heeded, signal.SIGALRM})
        found = None if found.si_signo == signal.SIGALRM else found
        large = found is None and note.is_large(child)
        if found is None and not last and not large:
            late = note.is_late
            if late:
                last = signal.SIGTERM
                os.kill(child, last)
            continue
        if found is None:  # one that is too large gets no grace: it grows meanwhile
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if large or late:
                return _end_beyond("memory" if large else "time")
            return _end_by(last, heeded)
        # A terminal sends to the whole group; what a process sent was for this one alone.
        if found.si_signo != signal.SIGCHLD and found.si_pid > 0:
            os.kill(child, found.si_signo)
        if found.si_signo in (signal.SIGTERM, signal.SIGHUP):
            last = found.si_signo
        interrupted = interrupted or found.si_signo == signal.SIGINT
    if late:
        return _RESOURCE if note.completed else _end_beyond("time")
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        if note.completed or (interrupted and code == _INTERRUPTED):
            return code  # one that has just begun cannot say that an interrupt is its own end
        sys.stderr.write(f"error: {_end(f'ended the process (exit code {code})', note)}\n")
        return _PLUGIN_FAILED
    name = signal.Signals(os.WTERMSIG(status)).name
    if name == "SIGINT":  # Python ends so when it is interrupted once more while it ends
        return _INTERRUPTED
    if name not in _CRASHES:
        return _end_by(os.WTERMSIG(status), heeded)
    sys.stderr.write(f"error: {_end(f'killed the process (signal {name})', note)}\n")
    return _PLUGIN_FAILED


def _end_beyond(limit: str) -> int:
    """Say that the child passed a limit, and did not see it itself."""
    unit = "seconds" if limit == "time" else "such as 8G"
    sys.stderr.write(
        f"error: the limit of {limit} was passed, inside native code or a plugin\n"
        f"  hint: --{limit}-limit allows more ({unit})\n"
    )
    return _RESOURCE


def _end_by(number: int, blocked: set[signal.Signals]) -> int:
    """End this process by a signal; one that it does not end by gives an exit code."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return _SIGNALLED + number


def _end(what: str, note: Note) -> str:
    """Who did what to the process, as far as the note tells."""
    hook, _, rest = note.read().partition("()")
    if hook and not rest:
        hint = "report it to the plugin's authors, or go on without: --no-plugin NAME"
        return f"{hook}() {what}\n  hint: {hint}"
    last = f"; the last hook that was asked: {hook}()" if hook else ""
    return (
        f"native code {what}{last}\n"
        "  hint: leave the accelerators out of the target one by one; "
        "intarsia --trace-plugins shows what was asked"
    )
