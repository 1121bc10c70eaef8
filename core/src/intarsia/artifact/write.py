# SPDX-License-Identifier: Apache-2.0
"""Writes an artifact: one stored zip, same bytes for same content, complete or not at all."""

from __future__ import annotations

import errno
import mmap
import os
import re
import shutil
import stat
import sys
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from ..errors import EXHAUSTED, PluginError, ResourceError, UsageError
from .deferred import Piece
from .digest import MemberDigest
from .passport import Member, Passport, print_passport
from .plan import ALIGNMENT
from .stream import hashed
from .tensors import tensor_pieces
from .unit import CompiledUnit

if TYPE_CHECKING:
    import numpy as np

PASSPORT = "passport.json"
PARAMS = "params.safetensors"
UNITS = "units"

Aside: TypeAlias = Callable[[IO[bytes]], object]
"""Called with a file that is complete before it gets its name, e.g. to copy it."""

_STEP = 8 << 20
_BLOCK = 4096  # bytes that what bypasses the system's memory of files is written in
_DATE = (1980, 1, 1, 0, 0, 0)
_PADDING_ID = 0xD935  # the zip extra field that Android's zipalign uses for the same purpose
_LEFT = re.compile(r"\d+\.[0-9a-f]{8}\.tmp")
_ABANDONED = 3600.0  # seconds after which nobody writes a temporary file any more
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def member_name(unit: str, file: str) -> str:
    """Return the name in the archive of a unit's file."""
    return f"{UNITS}/{unit}/{file}"


def part_unit(part: str, unit: str) -> str:
    """Return the name in the artifact of a part's unit."""
    return f"{part}.{unit}"


def write_artifact(
    path: Path,
    passport: Passport,
    units: Sequence[CompiledUnit],
    constants: Mapping[str, np.ndarray],
    *,
    aside: Aside | None = None,
) -> Passport:
    """Write an artifact beside ``path`` and rename it, so that ``path`` is old or new, never torn.

    Args:
        path: Where to. Its folder must exist.
        passport: All but its ``members``, which are filled in here.
        units: The code.
        constants: Every weight that the plan or a unit reads.
        aside: What else becomes of the bytes: nobody else can have touched them yet.

    Raises:
        ResourceError: The disk is full or read-only, or an input or output error.
        UsageError: The place cannot be written to.
        PluginError: A unit names a file in a way that would leave its folder.

    Returns:
        The passport as written.
    """
    path = Path(path)
    with written_beside(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            members = {
                name: _write_member(archive, file, name, [memoryview(data)])
                for name, data in _unit_files(units)
            }
            if constants:
                pieces = tensor_pieces(constants)
                lead = pieces[0].nbytes
                members[PARAMS] = _write_member(archive, file, PARAMS, pieces, lead=lead)
            written = replace(passport, members=MappingProxyType(members))
            text = print_passport(written)
            _write_member(archive, file, PASSPORT, [memoryview(text)])
        if aside is not None:
            file.flush()
            aside(file)
    return written


@contextmanager
def written_beside(path: Path) -> Generator[IO[bytes]]:
    """Yield a new file that becomes ``path`` if the block ends well, and vanishes if not.

    A link stays one: what it leads to is replaced.

    Raises:
        ResourceError: The disk is full or read-only, or an input or output error.
        UsageError: The place cannot be written to, or is a folder, a device or a pipe.
    """
    path = _place(path)
    _sweep(path)
    temporary = _temporary(path)
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise explain_failure(path, error) from error
    finally:
        with suppress(OSError):  # there is none: it has been renamed, or could not be made
            temporary.unlink()


def copy_artifact(source: IO[bytes], path: Path, *, is_read_next: bool = True) -> None:
    """Copy a whole file beside ``path`` and rename it, so that ``path`` is old or new, never torn.

    Args:
        source: An open file.
        path: Where to.
        is_read_next: Whether the copy is read rather than the source, whose place it then takes in
            the system's memory of files. Else the copy is written past that memory.

    Raises:
        As :func:`write_artifact`.
    """
    with written_beside(path) as copy:
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


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_hidden(path)}{os.getpid()}.{os.urandom(4).hex()}.tmp")


def _hidden(path: Path) -> str:
    return f".{path.name[:64]}."


def _sweep(path: Path) -> None:
    """Remove what was to become this file when its writer was killed, some time ago."""
    begin, oldest = _hidden(path), time.time() - _ABANDONED
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(begin) and _LEFT.fullmatch(entry.name[len(begin) :])
            if is_ours and entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)


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


def _unit_files(units: Sequence[CompiledUnit]) -> Iterator[tuple[str, bytes]]:
    for unit in sorted(units, key=_unit_name):
        for name, data in sorted(unit.files.items()):
            check_member_path(unit.name, name)
            yield member_name(unit.name, name), data


def _unit_name(unit: CompiledUnit) -> str:
    return unit.name


def check_member_path(unit: str, file: str) -> None:
    """Refuse a unit or file name that is not one plain relative path.

    Raises:
        PluginError: It is not.
    """
    for part in (unit, *file.split("/")):
        if part in ("", ".", "..") or not part.isprintable() or any(ch in '\\:"' for ch in part):
            raise PluginError(
                f"unit '{unit}' has a file named '{file}', which no artifact can hold"
            )


def _write_member(
    archive: zipfile.ZipFile,
    whole: IO[bytes],
    name: str,
    pieces: Sequence[Piece],
    *,
    lead: int = 0,
) -> Member:
    """Write one member so that its byte ``lead`` lies at a multiple of 64; return its digest."""
    size = sum(piece.nbytes for piece in pieces)
    entry = zipfile.ZipInfo(name, _DATE)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    entry.CRC, entry.compress_size, entry.file_size = 0, size, size
    zip64 = size * 1.05 > zipfile.ZIP64_LIMIT
    start = whole.tell() + len(entry.FileHeader(zip64))
    gap = -(start + 4 + lead) % ALIGNMENT
    entry.extra = _PADDING_ID.to_bytes(2, "little") + gap.to_bytes(2, "little") + bytes(gap)
    digest = MemberDigest()
    written = archive.open(entry, "w", force_zip64=zip64)
    with written as file, closing(hashed(pieces, digest)) as parts:
        for part in parts:
            file.write(part)
            start = _begin_to_store(whole, start)
    return Member(size, digest.hexdigest())


def _begin_to_store(file: IO[bytes], start: int) -> int:
    """Have the system write to the disk what stands behind ``start``, if it is much.

    Whoever syncs the file later has less to wait for. What is not on the disk yet, which is all of
    it, stays in the system's memory of files: to read it needs no disk.

    Returns:
        Where what has not been given to the disk begins.
    """
    end = file.tell()
    if sys.platform != "linux" or end - start < _STEP:
        return start
    with suppress(OSError):  # a hint
        os.posix_fadvise(file.fileno(), start, end - start, os.POSIX_FADV_DONTNEED)
    return end
