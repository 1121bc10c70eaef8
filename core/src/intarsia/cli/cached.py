# SPDX-License-Identifier: Apache-2.0
"""The key of a build from the command line: everything that decides the artifact's bytes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from ..build.artifact import Artifact
from ..build.cache import BuildCache, KeptArtifact, Key, Save, open_cache
from ..build.importing import source_digests
from ..build.pack import own_version
from ..build.records import records_path
from ..host.fingerprint import files_below
from ..target.target import CompositeTarget
from .model_options import BuildSettings

SCHEMA = 2
"""Version of the key."""

_CLOCKS = 10 * 10**9  # nanoseconds that clocks of file systems may differ from this machine's


class Keyed(Struct, frozen=True):
    """A build that can be kept.

    Attributes:
        model: The ONNX file.
        target: The canonical target.
        settings: What the command line says.
    """

    model: Path
    target: CompositeTarget
    settings: BuildSettings

    def key(self, digests: Mapping[str, str] | None = None) -> Key | None:
        """Return the key; ``None`` if a plugin of the target is not installed as files.

        Args:
            digests: Those of the model's files, if they are known.

        Raises:
            ModelError: The model, or a file with weights of it, cannot be read.
            PluginError: A plugin cannot be used.
        """
        settings, host = self.settings, self.settings.host
        kinds = {target.kind.name: target.kind for target in self.target.targets}
        plugins = {name: host.fingerprint(name) for name in sorted(kinds)}
        if not all(plugins.values()):
            return None
        hardware = host.hardware_of(self.target)
        rules = [rule.text for rule in settings.rules]
        return {
            "schema": SCHEMA,
            "intarsia": own_version(),
            "sources": _sources(),
            "python": sys.version,
            "name": self.model.stem,
            "model": source_digests(self.model) if digests is None else digests,
            "shapes": {k: [str(size) for size in v] for k, v in sorted(settings.shapes.items())},
            "target": str(self.target),
            "hardware": hardware.type if hardware else "",
            "memory": [
                [level.name, level.size, level.shared_by] for level in host.memory_of(self.target)
            ],
            "executor": settings.executor.to_json() if settings.is_executor_given else None,
            "runtime": settings.runtime.to_json(),
            "placement": [
                settings.plan.value, rules, settings.require_offload, settings.max_regions,
                settings.measure,
            ],
            "plugins": plugins,
            "environment": {
                name: kind.env_version() for name, kind in kinds.items() if kind.env_version
            },
            "records": _records(settings.records),
        }  # fmt: skip


class Sources:
    """Digests of a model's files, read beside what this thread does until it needs them.

    Args:
        model: The file.

    Attributes:
        began: When reading began, in nanoseconds since 1970.
        whose: What file the model's name stood for.
    """

    def __init__(self, model: Path) -> None:
        self.began, self.whose = time.time_ns(), _identity(model)
        self._found: dict[str, str] = {}
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._read, args=(model,), daemon=True)
        self._thread.start()

    def _read(self, model: Path) -> None:
        try:
            self._found = source_digests(model)
        except BaseException as error:  # whoever wants the digests is to hear of it
            self._failed = error

    def digests(self) -> dict[str, str]:
        """Return the digests by name, once they are complete.

        Raises:
            ModelError: The model, or a file with weights of it, cannot be read.
        """
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._found


def build_or_fetch(
    keyed: Keyed,
    make: Callable[[], Artifact],
    save: Save | None = None,
    *,
    cache: BuildCache | None,
    sources: Sources | None,
) -> Artifact | KeptArtifact:
    """Return what an earlier build of the same made, or build and keep it.

    Args:
        keyed: What is built, and for what.
        make: Builds it.
        save: Writes what was made now, and only that, where the user wants it.
        cache: Where builds are kept, if they are.
        sources: The model's files; needed for a cache.

    Raises:
        IntarsiaError: What ``make`` or ``save`` raises; or the model cannot be read.
    """
    if cache is None or sources is None:
        return _unkept(make, save)
    digests = sources.digests()
    key = keyed.key(digests)
    if key is None:
        return _unkept(make, save)
    files = [keyed.model.parent / location if location else keyed.model for location in digests]

    def holds() -> bool:
        same = sources.whose == _identity(keyed.model) and untouched(files, sources.began)
        return keyed.key(digests if same else None) == key

    return cache.fetch(key, make, holds, save)


def _unkept(make: Callable[[], Artifact], save: Save | None) -> Artifact:
    artifact = make()
    if save is not None:
        save(artifact, None)
    return artifact


def untouched(files: Sequence[Path], since: int) -> bool:
    """Say whether no file has changed, for sure, since a time in nanoseconds since 1970.

    A file that changed shortly before may have done so after, by a clock that is slow.
    """
    try:
        return all(file.stat().st_ctime_ns < since - _CLOCKS for file in files)
    except OSError:
        return False


def _identity(file: Path) -> tuple[int, int] | None:
    """What file a name stands for; ``None`` if for none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def cache_of(settings: BuildSettings) -> BuildCache | None:
    """The cache, if a build by these settings may use it.

    Sources for somebody's program, and builds whose stages are to be seen, are not kept.
    """
    seen = settings.dump_ir is not None or not settings.use_cache
    if seen or "freestanding" in settings.runtime.row.traits:
        return None
    return open_cache(os.environ)


def _sources() -> str:
    """A digest of the files of this package with their times: for who changes them in place."""
    folder = Path(__file__).resolve().parents[1]
    return sha256("\n".join(files_below(folder)).encode(errors="surrogateescape")).hexdigest()


def _records(given: str | None) -> str:
    """The digest of the records that a build would read; empty without."""
    path = records_path(given, os.environ)
    if path is None or not path.exists():
        return ""
    return sha256(path.read_bytes()).hexdigest()
