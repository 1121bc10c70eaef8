# SPDX-License-Identifier: Apache-2.0
"""Writes an artifact: one stored zip, same bytes for same content, complete or not at all."""

from __future__ import annotations

import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from intarsia_runtime.artifact.digest import MemberDigest
from intarsia_runtime.artifact.members import PARAMS, PASSPORT, check_member_path, member_name
from intarsia_runtime.artifact.passport import Member, Passport, print_passport
from intarsia_runtime.artifact.plan import ALIGNMENT
from intarsia_runtime.artifact.unit import CompiledUnit

from .deferred import Content, Piece, contents_of
from .new_file import NewFile
from .stream import hashed
from .tensor_pieces import tensor_pieces

if TYPE_CHECKING:
    import numpy as np

Aside: TypeAlias = Callable[[IO[bytes]], object]
"""Called with a file that is complete before it gets its name, e.g. to copy it."""

_STEP = 8 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
_PADDING_ID = 0xD935  # the zip extra field that Android's zipalign uses for the same purpose


def write_artifact(
    path: Path,
    passport: Passport,
    units: Sequence[CompiledUnit],
    constants: Mapping[str, np.ndarray],
    *,
    aside: Aside | None = None,
) -> Passport:
    """Write an artifact beside ``path`` and rename it, so that ``path`` is old or new, never torn.

    Arguments, errors and result are those of :meth:`ArtifactWriter.commit`.
    """
    with closing(ArtifactWriter(path)) as writer:
        return writer.commit(passport, units, constants, aside=aside)


class ArtifactWriter:
    """Writes an artifact beside a place and renames it: what is there is old or new, never torn.

    Weights come first and are written by a thread: whoever knows them before there is code has them
    written meanwhile.

    Args:
        path: Where to. Its folder must exist when something is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._weights: _WeightsOnTheWay | None = None

    def begin(self, constants: Mapping[str, np.ndarray]) -> None:
        """Begin to write weights, all that the artifact will have.

        Raises:
            ResourceError: The disk is full or read-only, or an input or output error.
            UsageError: The place cannot be written to.
            UnsupportedError: A weight has a name or a type that cannot be stored.
        """
        self.close()
        self._weights = _WeightsOnTheWay(self._path, constants)

    def commit(
        self,
        passport: Passport,
        units: Sequence[CompiledUnit],
        constants: Mapping[str, np.ndarray],
        *,
        aside: Aside | None = None,
    ) -> Passport:
        """Write the rest, and rename the file.

        Args:
            passport: All but its ``members``, which are filled in here.
            units: The code.
            constants: Every weight that the plan or a unit reads; those that have begun to be
                written are thrown away if they are others.
            aside: What else becomes of the bytes: nobody else can have touched them yet.

        Raises:
            As :meth:`begin`; and PluginError: a unit names a file in a way that would leave its
            folder.

        Returns:
            The passport as written.
        """
        if self._weights is None or not self._weights.are(constants):
            self.begin(constants)
        assert self._weights is not None  # begun above
        members, new, archive = self._weights.wait()
        try:
            for name, data in _unit_files(units):
                members[name] = _write_member(archive, new.file, name, [memoryview(data)])
            written = replace(passport, members=MappingProxyType(members))
            _write_member(archive, new.file, PASSPORT, [memoryview(print_passport(written))])
            archive.close()
            if aside is not None:
                new.file.flush()
                aside(new.file)
        except OSError as error:
            raise new.failure(error) from error
        new.commit()
        return written

    def close(self) -> None:
        """Throw away what is not finished; harmless when repeated."""
        if self._weights is not None:
            self._weights.close()
            self._weights = None


class _WeightsOnTheWay:
    """A new file with a zip in it, whose first member, the weights, a thread writes.

    Raises:
        As :meth:`ArtifactWriter.begin`.
    """

    def __init__(self, path: Path, constants: Mapping[str, np.ndarray]) -> None:
        self._contents = dict(contents_of(constants))
        self._members: dict[str, Member] = {}
        self._failed: BaseException | None = None
        self._stopped = threading.Event()
        pieces = tensor_pieces(constants) if constants else []
        self._new = NewFile(path)
        self._archive = zipfile.ZipFile(self._new.file, "w", zipfile.ZIP_STORED)
        self._thread = threading.Thread(target=self._write, args=(pieces,), daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system gives no more threads, or an interrupt while it waits
            self._stopped.set()
            with suppress(RuntimeError):  # it has not begun
                self._thread.join()
            self._remove()
            raise

    def are(self, constants: Mapping[str, np.ndarray]) -> bool:
        """Whether they are these."""
        contents: Mapping[str, Content] = contents_of(constants)
        known = self._contents
        return contents.keys() == known.keys() and all(contents[n] is known[n] for n in known)

    def wait(self) -> tuple[dict[str, Member], NewFile, zipfile.ZipFile]:
        """Return what there is when all weights are written: members, the file, the zip in it.

        Raises:
            ResourceError, UsageError: They could not be written.
            BaseException: They could not be computed.
        """
        self._thread.join()
        if isinstance(self._failed, OSError):
            raise self._new.failure(self._failed) from self._failed
        if self._failed is not None:
            raise self._failed
        return self._members, self._new, self._archive

    def close(self) -> None:
        """Remove the file, unless it is complete and in its place."""
        self._stopped.set()
        self._thread.join()
        self._remove()

    def _remove(self) -> None:
        self._archive.fp = None  # so it writes no end, neither now nor when it is collected
        self._new.close()

    def _write(self, pieces: Sequence[Piece]) -> None:
        if not pieces:
            return
        try:
            lead = pieces[0].nbytes
            self._members[PARAMS] = _write_member(
                self._archive, self._new.file, PARAMS, pieces, lead=lead, stopped=self._stopped
            )
        except BaseException as error:  # e.g. no memory; whoever waits is to hear of it
            self._failed = error


def _unit_files(units: Sequence[CompiledUnit]) -> Iterator[tuple[str, bytes]]:
    for unit in sorted(units, key=_unit_name):
        for name, data in sorted(unit.files.items()):
            check_member_path(unit.name, name)
            yield member_name(unit.name, name), data


def _unit_name(unit: CompiledUnit) -> str:
    return unit.name


def _write_member(
    archive: zipfile.ZipFile,
    whole: IO[bytes],
    name: str,
    pieces: Sequence[Piece],
    *,
    lead: int = 0,
    stopped: threading.Event | None = None,
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
            if stopped is not None and stopped.is_set():
                break
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
