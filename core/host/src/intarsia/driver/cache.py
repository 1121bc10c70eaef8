# SPDX-License-Identifier: Apache-2.0
"""Keeps artifacts of earlier builds, each under all that decided it.

An entry is the artifact and a file with its key, written beside and renamed, the key last. The key
is kept whole and compared whole. An entry that is damaged, or of another key, is a miss; so is any
trouble with the folder: a cache never fails a build.
"""

from __future__ import annotations

import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias, cast

from msgspec import Struct

from intarsia_ir.diagnostics import ModelWarning
from intarsia_ir.writing.artifact_writer import Aside
from intarsia_ir.writing.new_file import atomic_write, is_abandoned
from intarsia_runtime.artifact.archive import SUFFIX, OpenedArtifact, open_artifact
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.errors import ArtifactError, IntarsiaError, ResourceError, UsageError
from intarsia_runtime.load import Executable, instantiate

from ..host.trial import CACHE, cache_folder
from .artifact import Artifact
from .copying import copy_artifact

LIMIT = "INTARSIA_CACHE_SIZE"
"""Environment variable: MiB that artifacts may take in the cache; 0 turns it off."""

DEFAULT_MIB = 4096
_LOCK_SECONDS = 300.0  # what another process may take to build the same
_LEFT_SECONDS = 24 * 3600.0
_MIB = 1 << 20
_NOTES = "notes"
"""Warnings about the model, beside the parts of the key in the file of an entry."""

Key: TypeAlias = Mapping[str, object]
"""What decides a build, as plain JSON."""

Save: TypeAlias = Callable[[Artifact, Aside | None], object]
"""Writes what was built where the user wants it, and shows it as it is complete."""


class Entry(Struct, frozen=True):
    """A kept artifact.

    Attributes:
        artifact: The file.
        key: What decided it.
        bytes: Its size.
        used: When it was used last, in seconds since 1970.
    """

    artifact: Path
    key: Key
    bytes: int
    used: float

    @property
    def name(self) -> str:
        """Digest of the key."""
        return self.artifact.stem


class KeptArtifact(Struct, frozen=True, eq=False):
    """An artifact from the cache, checked and open: it stays whole whoever clears the cache.

    Attributes:
        opened: Its content.
        file: The file it lies in.
    """

    opened: OpenedArtifact
    file: BinaryIO

    @property
    def passport(self) -> Passport:
        """What it says of itself."""
        return self.opened.passport

    @property
    def placement(self) -> str:
        """What was offloaded, in one line."""
        return str(self.passport.placement.get("summary", ""))

    def save(self, path: str | os.PathLike[str], *, output_format: str | None = None) -> Path:
        """Copy it; the path is old or new, never torn.

        Args:
            path: Where to.
            output_format: ``artifact``, or ``None`` for it; others are for sources.

        Raises:
            ResourceError: The disk is full.
            UsageError: The place cannot be written to, or an artifact is no such format.
        """
        if output_format not in (None, "artifact") or os.fspath(path).endswith(("/", os.sep)):
            raise UsageError("compiled code can be written as an artifact only", hint="-o FILE")
        copy_artifact(self.file, Path(path))
        return Path(path)

    def load(self, *, threads: int | None = None, executor: str | None = None) -> Executable:
        """Make it ready to run in this process; raises as :func:`intarsia.load`."""
        return instantiate(self.opened, threads=threads, executor=executor)


class BuildCache(Struct, frozen=True):
    """A folder of artifacts.

    Attributes:
        folder: Belongs to the user alone.
        limit: Bytes that artifacts may take.
    """

    folder: Path
    limit: int

    def find(self, key: Key) -> KeptArtifact | None:
        """Return the artifact of a key, checked; ``None`` if there is none.

        One that is damaged is removed, and said in a warning.
        """
        path = self._path(key)
        kept = _read_key(path)
        if kept is None:
            return None
        try:
            if kept != _plain(key):
                raise ArtifactError("its key is not that of the build")
            file = path.open("rb")
            try:
                found = KeptArtifact(open_artifact(path), file)
            except BaseException:
                file.close()
                raise
        except FileNotFoundError:  # removed meanwhile
            return None
        except (IntarsiaError, OSError) as error:
            warnings.warn(f"a cached build is damaged, and made anew: {error}", stacklevel=2)
            self._remove(path)
            return None
        with suppress(OSError):
            os.utime(_key_file(path))
        for note in _read_notes(path):
            warnings.warn(note, ModelWarning, stacklevel=2)
        return found

    def fetch(
        self,
        key: Key,
        make: Callable[[], Artifact],
        holds: Callable[[], bool],
        save: Save | None = None,
    ) -> Artifact | KeptArtifact:
        """Return the artifact of a key, or make and keep it.

        Of several processes that want the same, one makes it and the others wait. Whatever is
        wrong with the folder is said in a warning, and costs the entry alone.

        Args:
            key: What decides the build.
            make: Builds it.
            holds: Whether the key is still true after that: files may have changed meanwhile.
            save: Writes what was made, and only that; the entry is a copy of that file.

        Raises:
            IntarsiaError: What ``make`` or ``save`` raises.
        """
        found = self.find(key)
        if found is not None:
            return found
        path = self._path(key)
        with self._locked(path) as locked:
            found = self.find(key) if locked else None
            if found is not None:
                return found
            with _model_warnings() as notes:
                artifact = make()
            kept = locked and holds()
            content = {**key, _NOTES: notes} if notes else key
            if save is not None:
                save(artifact, partial(self._keep_copy, path, content) if kept else None)
            elif kept:
                self._keep(path, content, artifact.save)
        return artifact

    def _keep_copy(self, path: Path, content: Key, written: IO[bytes]) -> None:
        """Make an entry of a file that is complete, and that is read rather than the entry."""
        self._keep(path, content, partial(copy_artifact, written, is_read_next=False))

    def _keep(self, path: Path, content: Key, write: Callable[[Path], object]) -> None:
        """Write an entry: the artifact, and its key with the warnings of the build."""
        try:
            write(path)
            with atomic_write(_key_file(path)) as file:
                file.write(json.dumps(_plain(content), indent=1).encode())
        except (ResourceError, UsageError) as error:
            warnings.warn(f"the build is not cached: {error.message}", stacklevel=2)
            self._remove(path)
            return
        self._trim(path)

    def entries(self) -> list[Entry]:
        """All entries, the one used last first; those without a readable key are left out."""
        found: list[Entry] = []
        for file in self._files("*.json"):
            artifact = file.with_suffix(SUFFIX)
            key = _read_key(artifact)
            with suppress(OSError):
                if key is not None:
                    size = artifact.stat().st_size
                    found.append(Entry(artifact, key, size, file.stat().st_mtime))
        return sorted(found, key=_used, reverse=True)

    def clear(self) -> int:
        """Remove all entries; return their number. What is being written is left alone."""
        count = 0
        for file in [*self._files("*.json"), *self._files(f"*{SUFFIX}")]:
            with suppress(OSError):
                file.unlink()
                count += file.suffix == SUFFIX
        self._sweep()
        return count

    def _sweep(self) -> None:
        """Remove what killed processes left: no build takes as long as these files are old."""
        for file in [*self._files(".*.tmp"), *self._files("*.lock")]:
            with suppress(OSError):
                if is_abandoned(file) or time.time() - file.stat().st_mtime > _LEFT_SECONDS:
                    file.unlink()

    def _path(self, key: Key) -> Path:
        name = sha256(json.dumps(_plain(key), sort_keys=True).encode()).hexdigest()
        return self.folder / f"{name}{SUFFIX}"

    def _files(self, pattern: str) -> Iterator[Path]:
        with suppress(OSError):
            yield from sorted(self.folder.glob(pattern))

    @contextmanager
    def _locked(self, path: Path) -> Generator[bool]:
        """Hold the lock of an entry; yields whether it could be had."""
        from filelock import FileLock, Timeout  # a hit needs no lock

        lock = FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS)
        try:
            lock.acquire()
        except (Timeout, OSError, NotImplementedError) as error:
            warnings.warn(f"the build is not cached: {error}", stacklevel=2)
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _trim(self, newest: Path) -> None:
        """Remove what was used longest ago until the rest fits; whoever has it open keeps it."""
        entries = self.entries()
        whole = sum(entry.bytes for entry in entries)
        for entry in reversed(entries):
            if whole <= self.limit or entry.artifact == newest:
                continue
            whole -= entry.bytes
            self._remove(entry.artifact)
        self._sweep()

    def _remove(self, artifact: Path) -> None:
        for file in (_key_file(artifact), artifact):  # an artifact without a key is no entry
            with suppress(OSError):
                file.unlink()


def open_cache(env: Mapping[str, str]) -> BuildCache | None:
    """Return the user's cache; ``None`` if it is off, or its folder cannot be trusted.

    Why it cannot is said in a warning.

    Raises:
        UsageError: The limit is no number.
    """
    text = env.get(LIMIT, "").strip() or str(DEFAULT_MIB)
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(
            f"{LIMIT} is {text[:40]!r}, not an integer below 10^11 (MiB)", hint=f"{LIMIT}=4096"
        )
    home = cache_folder(env)
    if home is None or int(text) == 0:
        return None
    folder = home / "builds"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
    except OSError as error:
        warnings.warn(
            f"no build is cached: '{folder}'{_named_by(env)}: {error.strerror}", stacklevel=2
        )
        return None
    reason = _distrust(status)
    if reason:
        warnings.warn(f"no build is cached: '{folder}'{_named_by(env)}: it {reason}", stacklevel=2)
        return None
    return BuildCache(folder, int(text) * _MIB)


def _named_by(env: Mapping[str, str]) -> str:
    """The variable that names the folder, for messages; empty if none does."""
    return f", from {CACHE}" if env.get(CACHE) else ""


def _distrust(status: os.stat_result) -> str:
    """Why code in a folder may be somebody else's; empty if it may not."""
    if not stat.S_ISDIR(status.st_mode):
        return "is a link"
    if os.name == "posix":
        if status.st_uid != os.getuid():
            return "belongs to another user"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return "can be written to by others"
    return ""


def _key_file(artifact: Path) -> Path:
    return artifact.with_suffix(".json")


def _read_key(artifact: Path) -> Key | None:
    """The key that is kept with an artifact; ``None`` if there is none that can be read."""
    content = _read_content(artifact)
    if content is None:
        return None
    return {name: value for name, value in content.items() if name != _NOTES}


def _read_notes(artifact: Path) -> list[str]:
    """The warnings about the model that its build gave."""
    notes = (_read_content(artifact) or {}).get(_NOTES)
    return [str(note) for note in cast("list[object]", notes)] if isinstance(notes, list) else []


def _read_content(artifact: Path) -> Mapping[str, object] | None:
    try:
        value: object = json.loads(_key_file(artifact).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


@contextmanager
def _model_warnings() -> Generator[list[str]]:
    """Collect the warnings about the model; they are shown as well."""
    notes: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def collect(
            message: Warning | str, category: type[Warning], *place: Any, **more: Any
        ) -> None:
            if issubclass(category, ModelWarning):
                notes.append(str(message))
            show(message, category, *place, **more)

        warnings.showwarning = collect
        yield notes


def _plain(key: Key) -> object:
    """The key as JSON gives it back."""
    return json.loads(json.dumps(key))


def _used(entry: Entry) -> float:
    return entry.used
