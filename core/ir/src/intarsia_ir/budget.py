# SPDX-License-Identifier: Apache-2.0
"""How much time and memory the host may take: one budget, which all of its stages ask.

A model is a program, and a small one can ask for any amount of work. Stages ask before they
allocate (:meth:`Budget.reserve`) and once for each node or iteration (:meth:`Budget.check`, well
below a microsecond). By default the host's own work has one limit, code generation of kernels
another, and accelerators' tools their own. A limit that a user gives counts everything.

What cannot ask, such as one long call of native code, is ended by the command line's parent
process (:mod:`intarsia.cli.supervise`); a library call has no such net. Address-space limits of
the system are not used: they count mapped weights and thread stacks, which take no memory.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

from msgspec import Struct

from intarsia_runtime.errors import ResourceError, UsageError

HOST_SECONDS = 300.0
"""Seconds that the host's own part of a build may take unless the user says otherwise."""
MAX_TENSOR_BYTES = 1 << 35
"""Bytes of one tensor; larger ones are mistakes or attacks."""
KERNEL_SECONDS = 600.0
"""Seconds that code generation of the kernels may take, likewise: large models take tens."""
FOLD_SECONDS = 10.0
"""Seconds of a build in which operators are carried out on constants, unless the user says more."""
FOLD_BYTES = 2 << 30
"""Bytes that a build may hold while operators are carried out on constants, likewise."""

_LOOK = 1 << 24  # bytes that may be reserved before memory in use is read anew
_TURNS = 64  # checks after which it is read anew
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)(?:i?B)?", re.IGNORECASE)

Watch = Callable[[float, int], object]
"""Told when the process is to be ended: a time of the monotonic clock, and bytes; 0 for never."""


class Budget(Struct):
    """Limits, and what is left of them.

    Attributes:
        seconds: Limit of time; infinite if there is none.
        memory: Limit of memory in bytes.
        deadline: When the time is over, in seconds of the monotonic clock.
        stage: What is being done, for messages.
        given: Whether the user set the time, so that everything counts.
        given_memory: Whether the user set the memory.
        fold_left: Seconds left for carrying out operators on constants.
        fold_base: Bytes in use when nodes of constants began to be carried out.
        watch: Told of every new deadline; only of work that counts by itself.
    """

    seconds: float
    memory: float
    deadline: float = inf
    stage: str = ""
    given: bool = False
    given_memory: bool = False
    fold_left: float = inf
    fold_base: float | None = None
    watch: Watch | None = None
    _reserved: int = 0
    _turns: int = 0

    def check(self, where: object = "") -> None:
        """Raise if the time is over, or more memory is in use than the limit.

        Args:
            where: The node, for the message.

        Raises:
            ResourceError: A limit is passed.
        """
        if time.monotonic() > self.deadline:
            raise self.out_of_time(where)
        self._turns += 1
        if self._turns >= _TURNS:
            self._look(0, where)

    def reserve(self, size: int, where: object = "") -> None:
        """Raise if memory for ``size`` more bytes would pass the limit.

        Raises:
            ResourceError: It would.
        """
        if size > self.memory:
            raise self._out_of_memory(size, where)
        self._reserved += size
        if self._reserved >= _LOOK:
            self._look(size, where)

    def _look(self, size: int, where: object) -> None:
        self._turns = self._reserved = 0
        if size + memory_in_use() > self.memory:
            raise self._out_of_memory(size, where)

    def out_of_time(self, where: object = "") -> ResourceError:
        """Return the error that says that the time is over."""
        return ResourceError(
            f"{self.stage or 'the work'} took longer than {self.seconds:g} s",
            where=str(where),
            hint=f"--time-limit {max(60, 4 * self.seconds):.0f} allows more (seconds; in Python "
            "time_limit=...)",
        )

    def _out_of_memory(self, size: int, where: object) -> ResourceError:
        used = memory_in_use()
        more = f"{size:,} bytes more than the {used:,} in use" if size else f"{used:,} bytes"
        return ResourceError(
            f"{self.stage or 'the work'} needs {more}, the limit is {int(self.memory):,}",
            where=str(where),
            hint=f"--memory-limit {_text(2 * max(size + used, int(self.memory)))} allows more "
            "(in Python memory_limit=...)",
        )

    @contextmanager
    def folding(self, stage: str, *, keeps: bool = False) -> Generator[Budget]:
        """Count the block, which carries out operators on constants, by its own smaller limits.

        Args:
            stage: What is done, for messages.
            keeps: Whether its results stay: memory then counts from the first such block.
        """
        start = time.monotonic()
        base = memory_in_use() if self.fold_base is None else self.fold_base
        if keeps:
            self.fold_base = base
        else:
            base = inf
        inner = Budget(
            self.seconds if self.given else FOLD_SECONDS,
            self.memory if self.given_memory else min(self.memory, base + FOLD_BYTES),
            min(self.deadline, start + self.fold_left),
            stage,
        )
        token = _CURRENT.set(inner)
        try:
            yield inner
        finally:
            _CURRENT.reset(token)
            self.fold_left -= time.monotonic() - start

    @contextmanager
    def apart(self, stage: str = "", seconds: float = inf) -> Generator[None]:
        """Leave a block, a backend's work, out of a limit that the user did not give.

        ``seconds`` is the limit of the block itself, and ``stage`` says in messages what it does.
        """
        if self.given or self.deadline == inf:
            yield
            return
        outside, left = (self.seconds, self.stage), self.deadline - time.monotonic()
        self.seconds, self.stage, self.deadline = seconds, stage, time.monotonic() + seconds
        self.tell()
        try:
            yield
        except KeyboardInterrupt:  # from whoever watches, if the time is over
            if time.monotonic() > self.deadline:
                raise self.out_of_time() from None
            raise
        finally:
            self.seconds, self.stage, self.deadline = *outside, time.monotonic() + left
            self.tell()

    def tell(self) -> None:
        """Say when this budget ends to whoever watches."""
        if self.watch is not None:
            deadline = 0.0 if self.deadline == inf else self.deadline
            self.watch(deadline, int(self.memory) if self.given_memory else 0)


_CURRENT: ContextVar[Budget | None] = ContextVar("intarsia_budget", default=None)
_WATCH: ContextVar[Watch | None] = ContextVar("intarsia_watch", default=None)


def budget() -> Budget:
    """Return the budget of the work in progress; without limits of time if nobody set one."""
    found = _CURRENT.get()
    if found is None:
        found = Budget(inf, physical_memory())
        _CURRENT.set(found)
    return found


@contextmanager
def limited(
    time_limit: float | None = None,
    memory_limit: int | None = None,
    *,
    host_seconds: float = HOST_SECONDS,
) -> Generator[Budget]:
    """Give the block a budget; work whose time is limited already keeps its own.

    Args:
        time_limit: Seconds for everything; if ``None``, ``host_seconds`` for the host's own work.
        memory_limit: Bytes; if ``None``, the memory of this machine.
        host_seconds: See ``time_limit``; infinite for no limit.

    Raises:
        UsageError: A limit is not above 0.
    """
    for name, value in (("time_limit", time_limit), ("memory_limit", memory_limit)):
        if value is not None and not 0 < value < inf:
            raise UsageError(f"{name} is {value}; expected a number above 0")
    outer = _CURRENT.get()
    if outer is not None and outer.deadline < inf:
        yield outer
        return
    seconds = host_seconds if time_limit is None else time_limit
    if memory_limit is None and outer is not None and outer.given_memory:
        memory_limit = int(outer.memory)
    new = Budget(
        seconds,
        physical_memory() if memory_limit is None else memory_limit,
        time.monotonic() + seconds,
        given=time_limit is not None,
        given_memory=memory_limit is not None,
        fold_left=FOLD_SECONDS if time_limit is None else seconds,
        watch=_WATCH.get(),
    )
    token = _CURRENT.set(new)
    new.tell()
    try:
        yield new
    except KeyboardInterrupt:  # from whoever watches, if the time is over
        if time.monotonic() > new.deadline:
            new.stage = ""
            raise new.out_of_time() from None
        raise
    finally:
        _CURRENT.reset(token)
        if new.watch is not None:
            new.watch(0.0, 0)


@contextmanager
def watched(watch: Watch | None) -> Generator[None]:
    """Tell ``watch`` of every deadline in the block: it ends what cannot ask."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def parse_memory(text: str) -> int:
    """Return the bytes that ``512M``, ``2G``, ``1.5 GiB`` or ``1000000`` stand for.

    Raises:
        UsageError: It is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if size <= 0:
        raise UsageError(f"'{text}' is no size of memory", hint="for example 512M or 2G")
    return size


def _text(size: int) -> str:
    for unit in ("T", "G", "M"):
        if size >= _UNITS[unit]:
            return f"{-(-size // _UNITS[unit])}{unit}"
    return str(size)


def memory_in_use(process: int | str = "self") -> int:
    """Return the bytes of memory that a process holds for itself; 0 where it cannot be told."""
    try:
        with open(f"/proc/{process}/statm", "rb", buffering=0) as file:
            words = file.read().split()
    except OSError:
        return 0
    return (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")


def physical_memory() -> int:
    """Return the bytes of memory of this machine; 2**48 where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 48
