# SPDX-License-Identifier: Apache-2.0
"""Loads an artifact for running. Nothing of the compiler is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from .artifact.archive import OpenedArtifact, open_artifact
from .artifact.machine import check_machine
from .cpu import this_machine
from .discovery import find_executor, find_runtime
from .errors import ArtifactError, PluginError, UsageError
from .executors.aot import AotExecutor
from .guarded import is_plugins_own
from .loading import DriveProgram, PlanExecutable
from .program import LoadedProgram

if TYPE_CHECKING:
    from .executors.open import OpenExecutor
    from .executors.variants import SizesExecutor
    from .executors.vm import Piece, VmExecutor

VM = "vm"
_MEMBERS = ("inputs", "outputs", "passport", "threads", "run", "run_into", "close")

Executable: TypeAlias = "PlanExecutable | VmExecutor | SizesExecutor | OpenExecutor"
"""A loaded artifact: ``inputs``, ``outputs``, ``run``, ``run_into`` and ``close``."""


class InProcess(StrEnum):
    """Runtimes of the core: if there is a library of the code, this process runs it."""

    CPP = auto()
    C = auto()


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    executor: str | None = None,
    signed_by: str | os.PathLike[str] | None = None,
) -> Executable:
    """Open an artifact, check it against this machine, and prepare it to run.

    An artifact is native code that runs in this process with all its rights: load only artifacts
    that you would run as programs.

    Args:
        path: The artifact.
        threads: Threads for parallel loops. Default: as many as the process may use.
        executor: ``aot``, ``graph`` or an executor of a plugin. Default: the one that the artifact
            was compiled for. An artifact for ``vm`` is always run as a program; with ``graph`` its
            pieces run step by step.
        signed_by: Public key of OpenSSH that must have signed the artifact; checked before any code
            of it is loaded.

    Returns:
        The loaded model: ``run(inputs)`` returns the outputs by name, ``run_into(inputs, outputs)``
        writes them into existing arrays. Close it, or use it in a ``with`` statement.

    Raises:
        ModelError: There is no such file.
        ArtifactError: The artifact is damaged or for another machine, or its plugin, executor or
            runtime is missing.
        PluginError: The loader of a region, an executor or a runtime fails.
        ResourceError: Not enough memory.
        UsageError: ``executor`` does not run here, or ``threads`` is less than 1.
    """
    opened = open_artifact(Path(path), signed_by=None if signed_by is None else Path(signed_by))
    return instantiate(opened, threads=threads, executor=executor)


def instantiate(
    opened: OpenedArtifact, *, threads: int | None = None, executor: str | None = None
) -> Executable:
    """Make an opened artifact ready to run; errors as :func:`load`."""
    return _instantiate(opened, threads, executor, _brings_libraries(opened))


def _brings_libraries(opened: OpenedArtifact) -> bool:
    """Whether a region of the artifact or of a part of it is a library's."""
    parts = (opened.part(part) for part in opened.passport.parts)
    return bool(opened.passport.plan.regions) or any(map(_brings_libraries, parts))


def _instantiate(
    opened: OpenedArtifact, threads: int | None, executor: str | None, with_libraries: bool
) -> Executable:
    passport = opened.passport
    if passport.sizes:
        return _program_of_sizes(opened, threads, executor, with_libraries)
    place = str(passport.runtime.get("kind", "cpp"))
    if place not in tuple(InProcess):
        begin = find_runtime(place)
        return _made(f"runtime '{place}'", begin, opened, threads=threads, options=passport.runtime)
    carried = str(passport.executor.get("kind", "aot"))
    kind = executor or carried
    if (kind == VM) != (carried == VM) and kind != "graph":
        raise UsageError(
            f"the artifact was compiled for executor '{carried}', which '{kind}' cannot replace"
        )
    if carried == VM:
        inner = "graph" if kind == "graph" else None
        return _program_of_pieces(opened, threads, inner, with_libraries)
    if passport.plan.open is not None:
        if kind not in ("aot", "graph", VM):
            wrong = UsageError if executor else ArtifactError  # whose word it is
            raise wrong(
                f"executor '{kind}' does not run a program of open sizes",
                hint="compile it with --shape, or run it with aot",
            )
        from .executors.open import OpenExecutor  # each where it drives: most artifacts have one

        return OpenExecutor(_program(opened, threads, with_libraries))
    if kind == "aot":
        return AotExecutor(_program(opened, threads, with_libraries))
    if kind == "graph":
        from .executors.graph import GraphExecutor

        return GraphExecutor(_program(opened, threads, with_libraries))
    drive = _drive(kind, wanted=executor is not None)
    options: Mapping[str, object] = passport.executor if kind == carried else {}
    return _made(f"executor '{kind}'", drive, _program(opened, threads, with_libraries), options)


def _program_of_pieces(
    opened: OpenedArtifact, threads: int | None, executor: str | None, with_libraries: bool
) -> VmExecutor:
    from .executors.graph import GraphExecutor
    from .executors.open import OpenExecutor
    from .executors.vm import VmExecutor

    check_machine(opened.passport, this_machine())

    def open_piece(part: OpenedArtifact) -> Piece:
        piece = _instantiate(part, threads, executor, with_libraries)
        if not isinstance(piece, AotExecutor | GraphExecutor | OpenExecutor):
            raise ArtifactError(f"the piece '{part.passport.name}' is itself a program")
        return piece

    return VmExecutor(opened, open_piece, threads)


def _program_of_sizes(
    opened: OpenedArtifact, threads: int | None, executor: str | None, with_libraries: bool
) -> SizesExecutor:
    from .executors.variants import Program, SizesExecutor

    check_machine(opened.passport, this_machine())

    def open_part(part: OpenedArtifact) -> Program:
        program = _instantiate(part, threads, executor, with_libraries)
        if isinstance(program, SizesExecutor):
            raise ArtifactError(f"the part '{part.passport.name}' has sizes of its own")
        return program

    return SizesExecutor(opened, open_part, threads)


def _drive(kind: str, *, wanted: bool) -> DriveProgram:
    try:
        return find_executor(kind)
    except ArtifactError:
        if not wanted:
            raise
        raise UsageError(f"no executor '{kind}' runs here", hint="aot or graph") from None


def _program(opened: OpenedArtifact, threads: int | None, with_libraries: bool) -> LoadedProgram:
    check_machine(opened.passport, this_machine())
    return LoadedProgram(opened, threads, with_libraries=with_libraries)


def _made(
    what: str, make: Callable[..., object], *given: object, **options: object
) -> PlanExecutable:
    """Call a plugin, and see that its answer can be run."""
    from .executors.foreign import ForeignExecutable

    try:
        made = make(*given, **options)
    except BaseException as error:  # a plugin may raise anything
        if isinstance(error, MemoryError) or not is_plugins_own(error):
            raise
        raise PluginError(f"the {what} fails on this artifact: {error!r}") from error
    lacks = [name for name in _MEMBERS if name not in dir(made)]
    if lacks:
        raise PluginError(f"the {what} made {type(made).__name__}, which has no {lacks[0]}")
    return cast("PlanExecutable", ForeignExecutable(cast("PlanExecutable", made), what))
