# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors, refused where there is none: models may compute sizes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from math import prod
from pathlib import Path
from sys import getrefcount
from typing import Self

import numpy as np
from msgspec import Struct, field

from .abi import NumpyType
from .artifact.plan import ALIGNMENT
from .errors import ResourceError

UNASKED_BYTES = 64 << 20
"""Bytes that are allocated without asking the system how many there are."""

_LARGE, _LARGEST = 32 << 20, 512 << 20  # bytes of results that are kept

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


class ResultMemory(Struct):
    """Memory of large results, used again when nobody holds what was computed there.

    The system clears new memory page by page, which took 40 % of the time of a softmax of 54 MB;
    the C library keeps what is freed of less than 32 MiB. ``y = run(x)`` in a loop holds one result
    while the next one is computed, so a model with one large output needs two blocks. A block
    that a thread looks at is nowhere else: no lock is held where another thread forks.

    Attributes:
        blocks: Those of the last results, free or not.
    """

    blocks: deque[np.ndarray] = field(default_factory=lambda: deque(maxlen=4))

    def if_large(self, rows: Iterable[tuple[str, tuple[int, ...], NumpyType]]) -> Self | None:
        """Return this if one of these results, each with its name, is large."""
        large = any(prod(shape) * dtype.itemsize >= _LARGE for _, shape, dtype in rows)
        return self if large else None

    def empty(self, shape: tuple[int, ...], dtype: NumpyType) -> np.ndarray:
        """Return an array, contents undefined; errors are those of :func:`numpy.empty`."""
        size = prod(shape) * dtype.itemsize
        if not _LARGE <= size <= _LARGEST:
            return np.empty(shape, dtype)
        for _ in range(len(self.blocks)):
            with suppress(IndexError):  # another thread looks at the last one
                block = self.blocks.popleft()
                is_free = block.nbytes == size and getrefcount(block) == 2  # of this and the count
                made = block.view(dtype).reshape(shape) if is_free else None
                self.blocks.append(block)
                if made is not None:
                    return made
        block = np.empty(size, np.uint8)
        self.blocks.append(block)
        return block.view(dtype).reshape(shape)


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
