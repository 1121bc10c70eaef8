# SPDX-License-Identifier: Apache-2.0
"""The bytes of a model's file: a regular one of a size that can be read."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from intarsia_runtime.errors import ModelError, ResourceError

from .sniff import describe_mode

MAPPED = 1 << 20  # bytes of a file from which it is mapped instead of read


def read_file(path: Path, max_bytes: int, *, mapped: bool = False) -> bytes | mmap.mmap:
    """Return the bytes of a file, or map them if it may be and it is large.

    Raises:
        ModelError: It cannot be opened, is no regular file, or is empty.
        ResourceError: It is larger than ``max_bytes``.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"cannot be opened: {reason}", where=str(path)) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            found = describe_mode(status.st_mode)
            raise ModelError(f"expected a regular file, found {found}", where=str(path))
        if status.st_size == 0:
            raise ModelError("expected an ONNX model, found an empty file", where=str(path))
        if status.st_size > max_bytes:
            raise ResourceError(
                f"{status.st_size} bytes; the limit is {max_bytes}",
                where=str(path),
                hint="store weights as external data",
            )
        if mapped and status.st_size >= MAPPED:
            return mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)
