# SPDX-License-Identifier: Apache-2.0
"""Copies of artifacts, by what of the system does so fastest."""

from __future__ import annotations

import mmap
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from intarsia_ir.writing.new_file import atomic_write

_STEP = 8 << 20
_BLOCK = 4096  # bytes that what bypasses the system's memory of files is written in


def copy_artifact(source: IO[bytes], path: Path, *, is_read_next: bool = True) -> None:
    """Copy a whole file beside ``path`` and rename it, so that ``path`` is old or new, never torn.

    Args:
        source: An open file.
        path: Where to.
        is_read_next: Whether the copy is read rather than the source, whose place it then takes in
            the system's memory of files. Else the copy is written past that memory.

    Raises:
        As :func:`~intarsia_ir.writing.new_file.atomic_write`.
    """
    with atomic_write(path) as copy:
        done = 0
        if sys.platform == "linux":
            copied = _copy_in_system if is_read_next else _copy_past_memory
            done = copied(source.fileno(), copy.fileno())
        source.seek(done)
        copy.seek(done)
        shutil.copyfileobj(source, copy)


def _copy_in_system(source: int, copy: int) -> int:
    """Let the system copy an open file, as far as it does; return the number of bytes."""
    done = 0
    with suppress(OSError):  # file systems that do not: the rest is read and written
        while count := os.copy_file_range(source, copy, _STEP, done, done):
            os.posix_fadvise(source, done, count, os.POSIX_FADV_DONTNEED)
            done += count
    return done


def _copy_past_memory(source: int, copy: int) -> int:
    """Have the disk read an open file's whole blocks from where the system remembers them.

    Returns:
        The number of bytes from the start that are copied, 0 where the system does not do so.
    """
    if sys.platform != "linux":
        return 0
    done, size = 0, os.fstat(source).st_size // _BLOCK * _BLOCK
    # File systems that know no such writing, or write less: the rest is read and written.
    with suppress(OSError, ValueError), _past_memory(copy) as direct:
        # A part at a time: what is mapped counts as memory of this process.
        while count := min(_STEP, size - done):
            with mmap.mmap(source, count, access=mmap.ACCESS_READ, offset=done) as part:
                written = os.pwrite(direct, part, done)
            if not written:
                break
            done += written
    return done


@contextmanager
def _past_memory(file: int) -> Generator[int]:
    """Yield another descriptor of an open file: what is written there goes to the disk at once."""
    direct = os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_DIRECT)
    try:
        yield direct
    finally:
        os.close(direct)
