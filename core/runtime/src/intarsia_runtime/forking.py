# SPDX-License-Identifier: Apache-2.0
"""What a process that is forked from one with loaded models needs.

Of all threads only the one that forks lives on in the child. A lock that another thread held would
stay locked there, and OpenMP would wait for threads that there are not.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache, partial
from typing import Protocol
from weakref import WeakSet

_PAUSE = "omp_pause_resource_all"
_HARD = 2  # omp_pause_hard: threads end, and begin anew when they are needed
_FORKS = "register_at_fork" in dir(os)


class HasLock(Protocol):
    """Something with a lock of its own."""

    def renew_lock(self) -> None:
        """Take a new lock: whoever held the old one does not exist in this process."""
        ...


def renew_lock_in_children(owner: HasLock) -> None:
    """Have the lock of ``owner`` renewed in every process that is forked while it lives."""
    _owners().add(owner)


@cache
def _owners() -> WeakSet[HasLock]:
    found: WeakSet[HasLock] = WeakSet()
    if _FORKS:
        os.register_at_fork(after_in_child=partial(_renew, found))
    return found


def _renew(owners: WeakSet[HasLock]) -> None:
    for owner in list(owners):
        owner.renew_lock()


def ends_threads_to_fork(openmp: ctypes.CDLL) -> bool:
    """Have OpenMP end the threads of whoever forks, before the fork; whether it can (GCC 9)."""
    try:
        address = ctypes.cast(openmp[_PAUSE], ctypes.c_void_p).value
    except AttributeError:
        return False
    return address is not None and _called_before_forks(address)


@cache
def _called_before_forks(address: int) -> bool:
    """Once a process, however many models it loads."""
    if not _FORKS:
        return False
    pause = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)
    os.register_at_fork(before=partial(pause, _HARD))
    return True
