# SPDX-License-Identifier: Apache-2.0
"""Loads an artifact for running. Nothing of the compiler is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from ..artifact.archive import OpenedArtifact, open_artifact, open_artifact_bytes
from ..artifact.machine import check_machine
from ..errors import ArtifactError, UsageError
from .cpu import this_machine
from .executors.aot import AotExecutor
from .executors.graph import GraphExecutor
from .executors.vm import VmExecutor
from .program import Program

VM = "vm"
EXECUTORS = ("aot", "graph", VM)

Compiled: TypeAlias = AotExecutor | GraphExecutor
"""A loaded artifact of native code alone."""

Executable: TypeAlias = AotExecutor | GraphExecutor | VmExecutor
"""A loaded artifact: ``inputs``, ``outputs``, ``run``, ``run_into`` and ``close``."""


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, executor: str | None = None
) -> Executable:
    """Open an artifact, check it against this machine, and make it ready to run.

    Args:
        path: The artifact.
        threads: Threads for parallel loops; ``None`` means as many as the process may use.
        executor: ``aot`` or ``graph``; ``None`` means what it was compiled for, and the only
            choice for one compiled for ``vm``.

    Raises:
        ModelError: There is no such file.
        ArtifactError: The artifact is damaged, for another machine, or needs a plugin that is
            missing.
        PluginError: The loader of a region fails.
        ResourceError: Not enough memory.
        UsageError: Unknown executor, or no threads.
    """
    return instantiate(open_artifact(Path(path)), threads=threads, executor=executor)


def instantiate(
    opened: OpenedArtifact, *, threads: int | None = None, executor: str | None = None
) -> Executable:
    """Make an opened artifact ready to run; errors as :func:`load`."""
    made_for = str(opened.passport.executor.get("kind", "aot"))
    kind = executor or made_for
    if kind not in EXECUTORS:
        raise UsageError(f"no executor '{kind}' runs here", hint=" or ".join(EXECUTORS))
    if (kind == VM) != (made_for == VM):
        raise UsageError(
            f"the artifact was compiled for executor '{made_for}', which '{kind}' cannot replace"
        )
    check_machine(opened.passport, this_machine())
    if kind == VM:

        def open_piece(data: bytes, name: str) -> Compiled:
            piece = instantiate(open_artifact_bytes(data, name), threads=threads)
            if isinstance(piece, VmExecutor):
                raise ArtifactError(f"the piece '{name}' is itself a program")
            return piece

        return VmExecutor(opened, open_piece, threads)
    program = Program(opened, threads)
    return AotExecutor(program) if kind == "aot" else GraphExecutor(program)
