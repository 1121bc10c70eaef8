# SPDX-License-Identifier: Apache-2.0
"""Weights outside the model file: read only from regular files beneath the model's folder."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from intarsia_runtime.errors import ModelError

from .sniff import describe_mode

_KEYS = frozenset({"location", "offset", "length", "checksum"})


class ExternalFiles:
    """Maps the external data files of one model, each once, and checks every range.

    Args:
        folder: The model's folder; ``None`` if the model came from memory, then nothing is read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._maps: dict[str, mmap.mmap | bytes] = {}

    def read(self, entries: Mapping[str, str], size: int, where: str) -> memoryview:
        """Return the bytes of one tensor.

        Args:
            entries: The tensor's ``external_data`` keys and values.
            size: Number of bytes the tensor's shape and element type need.
            where: The tensor, for messages.

        Raises:
            ModelError: Path outside the folder, no regular file of one name, or range not in it.
        """
        unknown = sorted(set(entries) - _KEYS)
        if unknown:
            raise ModelError(f"external data has the unknown key '{unknown[0]}'", where=where)
        if self._folder is None:
            raise ModelError(
                "external data, but the model did not come from a file",
                where=where,
                hint="pass the path of the model instead of its bytes",
            )
        location = entries.get("location", "")
        offset = _number(entries.get("offset", "0"), "offset", where)
        length = _number(entries.get("length", str(size)), "length", where)
        if length != size:
            raise ModelError(f"external data has {length} bytes, shape needs {size}", where=where)
        data = self._maps.get(location)
        if data is None:
            data = self._maps[location] = map_file(self._folder, location, where)
        if offset + length > len(data):
            raise ModelError(
                f"external data '{location}' ends at {len(data)}, "
                f"the tensor needs bytes {offset} to {offset + length}",
                where=where,
            )
        return memoryview(data)[offset : offset + length]


def _number(text: str, key: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"external data has the {key} '{text[:40]}'", where=where)
    return int(text)


def map_file(folder: Path, location: str, where: str) -> mmap.mmap | bytes:
    """Open ``location`` one path part at a time, following no link, and map it.

    Args:
        folder: The model's folder.
        location: As the model has it.
        where: The tensor, for messages.

    Raises:
        ModelError: It is no regular file of one name beneath the folder.
    """
    parts = location.split("/")
    windows = "\\" in location or ":" in location
    if not location or windows or "\0" in location or any(p in ("", ".", "..") for p in parts):
        raise ModelError(
            f"external data location '{location[:200]}' is not a path inside the model's folder",
            where=where,
        )
    folder_flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    file_flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(folder, folder_flags)
    try:
        for part in parts[:-1]:
            inner = os.open(part, folder_flags | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        inner = os.open(parts[-1], file_flags, dir_fd=handle)
        os.close(handle)
        handle = inner
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            found = describe_mode(status.st_mode)
            raise ModelError(f"external data '{location}' is {found}", where=where)
        if status.st_nlink != 1:
            raise ModelError(f"external data '{location}' is a hard link", where=where)
        if status.st_size == 0:
            return b""
        return mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(
            f"external data '{location}' cannot be opened (links are not followed): {reason}",
            where=where,
        ) from None
    finally:
        os.close(handle)
