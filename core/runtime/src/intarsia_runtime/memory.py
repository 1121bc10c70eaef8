# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors, refused where there is none: models may compute any size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .artifact.plan import ALIGNMENT
from .errors import ResourceError

UNASKED_BYTES = 64 << 20
"""Bytes that are allocated without asking the system how many there are."""

_CGROUP = Path("/sys/fs/cgroup")


def allocate(size: int) -> np.ndarray:
    """Return ``size`` bytes at a multiple of 64.

    Raises:
        ResourceError: There is less memory than that.
    """
    check_memory(size)
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise _no_memory(size) from None
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def check_memory(size: int) -> None:
    """Refuse what the system would promise, and end the process for when it is used.

    Raises:
        ResourceError: There are fewer bytes than ``size``.
    """
    if size > UNASKED_BYTES and size > available_memory():
        raise _no_memory(size)


def available_memory() -> int:
    """Return the bytes that this process may still take; a huge number if nobody knows."""
    found = [_available_here(), _left_in_group()]
    return min([size for size in found if size is not None], default=1 << 62)


def _available_here() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        rows = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
        found = [rows.get(name, "").split() for name in ("MemAvailable", "SwapFree")]
        if found[0]:
            return sum(int(row[0]) << 10 for row in found if row)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError, IndexError):
        return None


def _left_in_group() -> int | None:
    """Return what the control group of the process leaves; ``None`` if there is no limit."""
    try:
        most = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        lines = (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        cached = [int(line.split()[1]) for line in lines if line.startswith("inactive_file ")]
    except (OSError, ValueError, IndexError):
        return None
    return max(0, most - used + sum(cached))


def _no_memory(size: int) -> ResourceError:
    return ResourceError(
        f"no memory for a workspace of {size} bytes", hint="use a smaller batch or input"
    )
