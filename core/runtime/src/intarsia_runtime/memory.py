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

_LARGE, _LARGEST = 256 << 10, 512 << 20  # bytes of results whose memory is kept

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

    The system clears new memory page by page, which took 40 % of the time of a softmax of 54 MB,
    and as much of a decoder that returns its caches; the C library gives back what is freed of
    some MB. ``y = run(x)`` in a loop holds one result while the next one is computed: there are two
    blocks for each. A block that a thread looks at is nowhere else: no lock is held where another
    thread forks.

    Attributes:
        blocks: Those of the last results, free or not, by their bytes.
    """

    blocks: dict[int, deque[np.ndarray]] = field(default_factory=dict[int, "deque[np.ndarray]"])

    def fitted(self, rows: Iterable[tuple[str, tuple[int, ...], NumpyType]]) -> Self | None:
        """Keep blocks for these results, each with its name; ``None`` if they are small."""
        sizes = [prod(shape) * dtype.itemsize for _, shape, dtype in rows]
        kept = [_block_bytes(size) for size in sizes if _LARGE <= size <= _LARGEST]
        self.blocks = {n: deque(self.blocks.get(n, ()), 2 * kept.count(n)) for n in kept}
        return self if kept else None

    def empty(self, shape: tuple[int, ...], dtype: NumpyType) -> np.ndarray:
        """Return an array, contents undefined; errors are those of :func:`numpy.empty`."""
        size = prod(shape) * dtype.itemsize
        blocks = self.blocks.get(_block_bytes(size))
        if blocks is None:
            return np.empty(shape, dtype)
        for _ in range(len(blocks)):
            with suppress(IndexError):  # another thread looks at the last one
                block = blocks.popleft()
                is_free = getrefcount(block) == 2  # of this name, and of the count itself
                made = block[:size].view(dtype).reshape(shape) if is_free else None
                blocks.append(block)
                if made is not None:
                    return made
        blocks.append(block := np.empty(_block_bytes(size), np.uint8))
        return block[:size].view(dtype).reshape(shape)


def _block_bytes(size: int) -> int:
    """Return the bytes of a block for so many, so that a cache may grow."""
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step


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
    return ResourceError(f"no memory for a workspace of {size} bytes", hint="use smaller inputs")
