# SPDX-License-Identifier: Apache-2.0
"""New files that are complete or not there: written beside their place, then renamed.

An interrupt may come anywhere, also before whoever made a file knows of it. So the file goes with
the object that stands for it, at the latest when the process ends.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import weakref
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from intarsia_runtime.artifact.abandoned import hold, is_held
from intarsia_runtime.errors import EXHAUSTED, ResourceError, UsageError

_LEFT = re.compile(r"\d+\.[0-9a-f]{8}\.tmp")
_WRITER = re.compile(r"\.(\d+)\.[0-9a-f]{8}\.tmp$")
_ABANDONED = 3600.0  # seconds after which nobody writes a temporary file any more
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class NewFile:
    """A file beside ``path`` that takes its place when it is complete, and vanishes if it is not.

    A link stays one: what it leads to is replaced.

    Args:
        path: Where it shall be. Its folder must exist.

    Attributes:
        file: Is open to be read and written.

    Raises:
        ResourceError: The disk is full or read-only, or an input or output error.
        UsageError: The place cannot be written to, or is a folder, a device or a pipe.
    """

    def __init__(self, path: Path) -> None:
        self._path = _place(path)
        _sweep(self._path)
        while True:
            self._temporary = _temporary(self._path)
            self._remove = weakref.finalize(self, _remove, self._temporary, os.getpid())
            try:
                self.file: IO[bytes] = open(self._temporary, "x+b")  # noqa: SIM115  (closed below)
            except OSError as error:
                self._remove()
                raise self.failure(error) from error
            hold(self.file.fileno())
            if os.fstat(self.file.fileno()).st_nlink:
                break
            self.file.close()  # somebody took it for an abandoned one before it was locked

    def failure(self, error: OSError) -> ResourceError | UsageError:
        """Return the error that says why it could not be written."""
        return explain_failure(self._path, error)

    def commit(self) -> None:
        """Put it in its place; it is on the disk then.

        Raises:
            ResourceError, UsageError: As when it was made.
        """
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self._temporary, self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise self.failure(error) from error

    def close(self) -> None:
        """Remove it, unless it is in its place; harmless when repeated."""
        with suppress(OSError):  # what could not be written is not wanted any more
            self.file.close()
        self._remove()


def _remove(temporary: Path, writer: int) -> None:
    """Remove a file, if there is one, in the process of its writer; not in one forked from that."""
    if os.getpid() == writer:
        with suppress(OSError):  # it has been renamed, or could not be made
            temporary.unlink()


@contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes]]:
    """Yield a :class:`NewFile` that takes its place if the block ends well, and vanishes if not.

    Raises:
        ResourceError: The disk is full or read-only, or an input or output error.
        UsageError: The place cannot be written to, or is a folder, a device or a pipe.
    """
    with closing(NewFile(path)) as new:
        try:
            yield new.file
        except OSError as error:
            raise new.failure(error) from error
        new.commit()


def _place(path: Path) -> Path:
    """Return where the file itself lies.

    Raises:
        ResourceError, UsageError: No file can be there, or something else is, which a rename would
            take away: of ``/dev/null``, the whole system would miss it.
    """
    found = path
    try:
        found = Path(os.path.realpath(path)) if path.is_symlink() else path
        mode = path.stat().st_mode
    except FileNotFoundError:
        return found
    except OSError as error:
        raise explain_failure(path, error) from error
    except ValueError as error:  # a zero in the name
        raise UsageError(
            f"cannot write {str(path)!r}: {error}", hint="name another place"
        ) from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"'{path}' is a folder", hint=f"name a file in it: '{path / 'NAME'}'")
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"'{path}' is a device or a pipe, and a file would take its place", hint="name a file"
        )
    return found


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_hidden(path)}{os.getpid()}.{os.urandom(4).hex()}.tmp")


def _hidden(path: Path) -> str:
    return f".{path.name[:64]}."


def _sweep(path: Path) -> None:
    """Remove what was to become this file when its writer was killed."""
    begin = _hidden(path)
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(begin) and _LEFT.fullmatch(entry.name[len(begin) :])
            if is_ours and is_abandoned(Path(entry.path)):
                os.unlink(entry.path)


def is_abandoned(temporary: Path) -> bool:
    """Whether nobody writes a temporary file any more: no lock, and its process is gone.

    A process of that number, here or where a shared folder is written from, may be another one; so
    an hour without a lock counts too.
    """
    found = _WRITER.search(temporary.name)
    if found is None or is_held(temporary):
        return False
    try:
        os.kill(int(found[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # somebody else's process
        pass
    return temporary.lstat().st_mtime < time.time() - _ABANDONED


def _sync_folder(folder: Path) -> None:
    """Have a new name on the disk, as far as one may open the folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def explain_failure(path: Path, error: OSError) -> ResourceError | UsageError:
    """Return the error that says why ``path`` could not be written."""
    reason = error.strerror or str(error)
    if error.errno in EXHAUSTED:
        return ResourceError(
            f"cannot write '{path}': {reason}", hint="free some space, or write elsewhere"
        )
    if error.errno in _FORBIDDEN:
        return ResourceError(f"cannot write '{path}': {reason}", hint="name another place")
    return UsageError(f"cannot write '{path}': {reason}", hint="name another place")
