# SPDX-License-Identifier: Apache-2.0
"""Threads of compiled code: GNU OpenMP, loaded once for the process and shared by all parts."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from ..errors import UsageError

_OPENMP = "libgomp.so.1"


def load_openmp() -> ctypes.CDLL | None:
    """Make OpenMP's symbols visible to code loaded later; None where there is no OpenMP."""
    try:
        return ctypes.CDLL(_OPENMP, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def available_threads() -> int:
    """Return how many processors this process may use."""
    if "OMP_NUM_THREADS" in os.environ:
        first = os.environ["OMP_NUM_THREADS"].split(",")[0].strip()
        if first.isdigit() and int(first) > 0:
            return int(first)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def choose_threads(threads: int | None) -> int:
    """Return ``threads``, or what this process may use.

    Raises:
        UsageError: Less than one thread.
    """
    if threads is None:
        return available_threads()
    if threads < 1:
        raise UsageError(f"{threads} threads cannot run anything", hint="--threads 1 or more")
    return threads


def thread_setter(openmp: ctypes.CDLL | None) -> Callable[[int], object] | None:
    """Return OpenMP's function that sets the threads of the calling thread's parallel loops."""
    if openmp is None:
        return None
    setter = openmp.omp_set_num_threads
    setter.argtypes, setter.restype = (ctypes.c_int,), None
    return setter
