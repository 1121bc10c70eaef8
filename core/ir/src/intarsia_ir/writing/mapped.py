# SPDX-License-Identifier: Apache-2.0
"""Arrays that are views of mapped files, whose memory the system can have back."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import numpy as np


def release(arrays: Iterable[np.ndarray]) -> None:
    """Take the files that arrays are views of out of memory, until they are read again.

    A weight is read once or twice while compiling, and its whole file would stay meanwhile. Arrays
    that are no views of a file are left alone.
    """
    files = {id(file): file for array in arrays if (file := _mapped_file(array)) is not None}
    for file in files.values():
        file.madvise(mmap.MADV_DONTNEED)


def _mapped_file(array: np.ndarray) -> mmap.mmap | None:
    """The mapped file that an array is a view of, if it can be read only."""
    import numpy as np  # not loaded by those who read artifacts without running them

    base: object = array
    while isinstance(base, np.ndarray):
        base = cast("object", base.base)
    if isinstance(base, memoryview):
        base = base.obj
    if sys.platform != "linux" or not isinstance(base, mmap.mmap):
        return None
    return base if memoryview(base).readonly else None  # what was written to a copy would be lost
