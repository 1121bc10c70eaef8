# SPDX-License-Identifier: Apache-2.0
"""Threads of compiled code: of its own, or GNU OpenMP's where it shares them with libraries."""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from functools import cache

from .errors import ResourceError, UsageError

_OPENMP = "libgomp.so.1"
_SPIN = "GOMP_SPINCOUNT"
_SPIN_COUNT = "20000"

MOST_THREADS = 1024
"""More of them are a mistake, and OpenMP ends the process where the system gives no more."""

POOL_BYTES = 18_944
"""Bytes in which compiled code keeps the threads of the process (see :func:`thread_pool`)."""


def load_openmp() -> ctypes.CDLL | None:
    """Make OpenMP's symbols visible to code loaded later; None where there is no OpenMP.

    A thread that waits for another spins first, by default for milliseconds. If other programs keep
    the processors busy, spinning takes time from the thread that it waits for. A thread that sleeps
    at once needs some 0.1 ms to wake on a virtual machine, at each kernel. MobileNet-v2 on two
    threads with 20 000 rounds (some 0.2 ms) takes 2.5 ms on idle processors and 9 ms beside a busy
    program; with 1 000 rounds 3 to 9 and 10 ms; with 100 000 rounds 2.4 and up to 600 ms. On an
    Intel processor a round takes five times as long: beside a busy program ResNet-50 in 8 bits
    takes 77 ms (13 on idle processors), with 1 000 rounds 19 ms; but Magika then takes 1.5 times as
    long on idle ones. OpenMP reads the setting once, when the process loads it first; a user's own
    setting wins.
    """
    ours = not any(name in os.environ for name in (_SPIN, "OMP_WAIT_POLICY"))
    if ours:
        os.environ[_SPIN] = _SPIN_COUNT
    try:
        return ctypes.CDLL(_OPENMP, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    finally:
        if ours:
            del os.environ[_SPIN]


@cache
def thread_pool() -> int:
    """Return the address of ``POOL_BYTES`` at a multiple of 64, zero at first, never freed.

    All code that shares its loops between threads of its own keeps them there, so that a process
    has one pool however many artifacts it loads. Threads look into it until the process ends,
    which is after Python has freed its objects.
    """
    allocate = ctypes.pythonapi.PyMem_RawCalloc
    allocate.argtypes, allocate.restype = (ctypes.c_size_t, ctypes.c_size_t), ctypes.c_void_p
    start = allocate(1, POOL_BYTES + 63)
    if not start:
        raise ResourceError("no memory for threads")
    return start + -start % 64


def available_threads() -> int:
    """Return how many processors this process may use."""
    if "OMP_NUM_THREADS" in os.environ:
        first = os.environ["OMP_NUM_THREADS"].split(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return min(int(first), MOST_THREADS)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def choose_threads(threads: int | None) -> int:
    """Return ``threads``, or what this process may use.

    Raises:
        UsageError: Less than one thread, or more than :data:`MOST_THREADS`.
    """
    if threads is None:
        return available_threads()
    if not 1 <= threads <= MOST_THREADS:
        raise UsageError(
            f"a model cannot run on {threads} threads", hint=f"--threads 1 to {MOST_THREADS}"
        )
    return threads


def startable_threads(count: int) -> int:
    """Return how many threads the system gives, at most ``count``; with a warning if it is less.

    OpenMP has no other way than to end the process when it finds out.
    """
    found = 1 if count == 1 else _started(count)
    if found < count:
        text = f"the system gives {found} threads of {count}: a limit of the process or the user"
        warnings.warn(text, stacklevel=2)
    return found


def _started(count: int) -> int:
    """Try it: start all but the calling thread, and let them end when all are there."""
    end, workers = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count - 1):
            workers.append(threading.Thread(target=end.wait, daemon=True))
            workers[-1].start()
    except (RuntimeError, MemoryError):  # "can't start new thread"
        workers.pop()
    finally:
        end.set()
        for worker in workers:
            worker.join()
    return 1 + len(workers)


def thread_setter(openmp: ctypes.CDLL | None) -> Callable[[int], object] | None:
    """Return OpenMP's function that sets the threads of the calling thread's parallel loops."""
    if openmp is None:
        return None
    setter = openmp.omp_set_num_threads
    setter.argtypes, setter.restype = (ctypes.c_int,), None
    return setter
