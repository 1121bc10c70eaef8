# SPDX-License-Identifier: Apache-2.0
"""Builds that are fetched from the cache, by a key of everything that decides their bytes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia_ir.graph.digest import module_digest
from intarsia_ir.graph.module import IRModule
from intarsia_ir.partition.cost import Plan

from ..host.fingerprint import own_files
from .cache import BuildCache, KeptArtifact, Key, Save, open_cache
from .importing import source_digests
from .tuned import records_path
from .version import __version__

if TYPE_CHECKING:
    from ..host.host import Host
    from ..target.read import TargetSpec
    from .artifact import Artifact
    from .build import Options
    from .importing import Model
    from .request import BuildRequest

SCHEMA = 2
"""Version of the key."""

_CLOCKS = 10 * 10**9  # nanoseconds that clocks of file systems may differ from this machine's


def build_key(request: BuildRequest, digests: Mapping[str, str] | None = None) -> Key | None:
    """Return everything that decides the bytes of a build's artifact.

    Args:
        request: The build.
        digests: Those of the model's files by name, if they are known; of a module, that of its
            content.

    Returns:
        Plain JSON; ``None`` if the model is no file and has no digest, or a plugin of the target is
        not installed as files.

    Raises:
        ModelError: The model, or a file with weights of it, cannot be read.
        PluginError: A plugin cannot be used.
    """
    model, host, target = model_file(request), request.host, request.target
    kinds = {part.kind.name for part in target.targets}
    plugins = {name: host.fingerprint(name) for name in sorted(kinds)}
    if digests is None:
        digests = None if model is None else source_digests(model)
    if digests is None or not all(plugins.values()):
        return None
    hardware, given = host.hardware_of(target), request.given_executor
    rules = [rule.text for rule in request.rules]
    shapes = request.shapes or {}
    return {
        "schema": SCHEMA,
        "intarsia": __version__,
        "sources": _sources(),
        "python": sys.version,
        "name": request.name,
        "model": dict(digests),
        "shapes": {k: [str(size) for size in v] for k, v in sorted(shapes.items())},
        "values": {name: str(value) for name, value in sorted(request.source.values.items())},
        "target": str(target),
        "hardware": hardware.type if hardware else "",
        "memory": [[level.name, level.size, level.shared_by] for level in host.memory_of(target)],
        "executor": None if given is None else given.to_json(),
        "runtime": request.runtime.to_json(),
        "placement": [
            (request.plan or Plan.COST).value, rules, request.require_offload, request.max_regions,
            request.measure is not None,
        ],
        "plugins": plugins,
        "environment": host.environment_versions(target.targets),
        "records": _records(request.records),
    }  # fmt: skip


def model_file(request: BuildRequest) -> Path | None:
    """Return the file of a request's model; ``None`` if it is a module, or bytes.

    So it is if a plugin imports it: which files belong to a model of its format only it knows.
    """
    model = request.source.model
    if request.source.frontend is not None or not isinstance(model, str | os.PathLike):
        return None
    return Path(model)


class ModelDigests:
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
    request: BuildRequest,
    *,
    cache: BuildCache | None,
    sources: ModelDigests | None = None,
    make: Callable[[], Artifact] | None = None,
    save: Save | None = None,
) -> Artifact | KeptArtifact:
    """Return what an earlier build of the same made, or build and keep it.

    Args:
        request: What is built, and for what; see :func:`intarsia.driver.build.request_build`.
        cache: Where builds are kept, if they are; see :func:`cache_of`.
        sources: The model's files, if they are being read; else they are read now.
        make: Builds it; :func:`intarsia.driver.build.build_request` if ``None``.
        save: Writes what was made now, and only that, where the user wants it.

    Raises:
        IntarsiaError: What ``make`` or ``save`` raises; or the model cannot be read.
    """
    from .build import build_request  # imports every stage: a hit needs none

    make = make or partial(build_request, request)
    model = model_file(request)
    if cache is None or model is None:
        return _unkept(make, save)
    sources = sources or ModelDigests(model)
    digests = sources.digests()
    key = build_key(request, digests)
    if key is None:
        return _unkept(make, save)
    files = [model.parent / location if location else model for location in digests]

    def holds() -> bool:
        same = sources.whose == _identity(model) and untouched(files, sources.began)
        return build_key(request, digests if same else None) == key

    return cache.fetch(key, make, holds, save)


def _unkept(make: Callable[[], Artifact], save: Save | None) -> Artifact:
    artifact = make()
    if save is not None:
        save(artifact, None)
    return artifact


def build_cached(
    ir_mod: Model, target: TargetSpec | None = None, *, host: Host | None = None, **options: Options
) -> Artifact | KeptArtifact:
    """Compile a model, or return the cached build of an earlier call or process.

    The key of a build has the content of the model, the target, the options, the versions of the
    plugins, and everything else that decides the bytes of the artifact.

    Args:
        ir_mod: As in :func:`intarsia.build`. Bytes and modules with branches are not cached.
        target: As there.
        host: As there.
        options: The other arguments of :func:`intarsia.build`.

    Returns:
        An artifact to save or load, with a ``passport`` and a ``placement``.

    Raises:
        IntarsiaError: As :func:`intarsia.build`.
    """
    from .build import build_request, request_build  # imports every stage

    request = request_build(ir_mod, target, host=host, **options)
    cache = cache_of(request)
    if not isinstance(ir_mod, IRModule):
        return build_or_fetch(request, cache=cache)
    digest = None if cache is None else module_digest(ir_mod)
    key = None if digest is None else build_key(request, {"": digest})
    if cache is None or key is None:
        return build_request(request)
    return cache.fetch(
        key, partial(build_request, request), lambda: module_digest(ir_mod) == digest
    )


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


def cache_of(request: BuildRequest) -> BuildCache | None:
    """Return the user's cache, if a build may use it; ``None`` if it is off, too.

    Raises:
        UsageError: The limit in the environment is no number.
    """
    return open_cache(os.environ) if may_be_kept(request) else None


def may_be_kept(request: BuildRequest) -> bool:
    """Whether a build may come from the cache.

    Sources for somebody's program, builds whose stages are to be seen, and builds that warn of what
    overflows may not.
    """
    is_seen = request.dump.is_on or request.allow_overflow
    return not (is_seen or request.runtime.is_freestanding)


def _sources() -> str:
    """A digest of Intarsia's own files with their times: for who changes them in place."""
    return sha256("\n".join(own_files()).encode(errors="surrogateescape")).hexdigest()


def _records(given: str | os.PathLike[str] | None) -> str:
    """The digest of the records that a build would read; empty without."""
    path = records_path(given, os.environ)
    if path is None or not path.exists():
        return ""
    return sha256(path.read_bytes()).hexdigest()
