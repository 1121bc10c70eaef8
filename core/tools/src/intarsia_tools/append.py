# SPDX-License-Identifier: Apache-2.0
"""Appends to files of JSON lines that several processes write.

A line is written as a whole under a lock, and synced. One that is torn all the same (the machine
went down) is no line; whoever appends next begins a new one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from intarsia_ir.tir.records import Record
from intarsia_runtime.errors import ResourceError

_LOCK_SECONDS = 60.0


def append_record(path: Path, row: Record) -> None:
    """Add a line; several processes may at the same time.

    Raises:
        ResourceError: It cannot be written, or another process holds the lock for a minute.
    """
    append_line(path, json.dumps(row.to_json()))


def append_line(path: Path, text: str) -> None:
    """Add a line to a file that several processes may append to; whole, and synced.

    Raises:
        ResourceError: It cannot be written, or another process holds the lock for a minute.
    """
    from filelock import FileLock, Timeout  # reading needs no lock

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=_LOCK_SECONDS)
        with lock, path.open("ab+") as file:
            if file.tell() and _last_byte(path) != b"\n":
                file.write(b"\n")
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except Timeout:
        raise ResourceError(f"another process keeps '{path}' locked") from None
    except OSError as error:
        raise ResourceError(f"cannot write records to '{path}': {error.strerror}") from None


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
