# SPDX-License-Identifier: Apache-2.0
"""Temporary files and folders whose owner was killed are known by a lock that died with it.

Who makes one locks it (``flock``), as long as it is in use: the system takes the lock away when the
last process that has it open ends, however it ends. What nobody locks is nobody's. Where the system
has no such locks, nothing is removed by them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover  a system without flock
    fcntl = None

_PREFIX = "intarsia-"
_SUFFIX = ".held"
"""Only folders that are locked while they are in use end so; others are left alone."""


def hold(descriptor: int) -> None:
    """Lock an open file or folder until it is closed; waits for who is just looking at it."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Lock a file or folder for the block; yields whether it was nobody's, and is ours now.

    False also if that cannot be known.
    """
    descriptor = -1
    try:
        if fcntl is not None:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = fcntl is not None
    except OSError:
        is_ours = False
    try:
        yield is_ours
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether anybody has locked a file or folder, or that cannot be known."""
    with _locked(path) as is_ours:
        return not is_ours


@contextmanager
def temporary_folder(what: str) -> Generator[Path]:
    """Yield a new folder, removed at the end; those that killed processes left are removed first.

    Args:
        what: Goes into its name: ``cc`` gives ``intarsia-cc-....held``.
    """
    import tempfile  # opening an artifact makes no folder

    _remove_abandoned(Path(tempfile.gettempdir()))
    folder, descriptor = _new_folder(what)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _new_folder(what: str) -> tuple[Path, int]:
    """Return a folder that is ours, and what holds its lock."""
    import tempfile

    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{what}-", suffix=_SUFFIX))
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # taken for an abandoned one before it was locked
            continue
        hold(descriptor)
        if os.fstat(descriptor).st_nlink and path.is_dir():
            return path, descriptor
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)
            if not is_ours or not entry.is_dir(follow_symlinks=False):
                continue
            with _locked(Path(entry.path)) as is_abandoned:  # who has just made it waits for us
                if is_abandoned:
                    shutil.rmtree(entry.path, ignore_errors=True)  # others' folders refuse
