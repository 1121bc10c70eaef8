# SPDX-License-Identifier: Apache-2.0
"""Loads an artifact for running. Nothing of the compiler is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from ..artifact.archive import OpenedArtifact, open_artifact
from ..artifact.machine import check_machine
from ..errors import UsageError
from .cpu import this_machine
from .executors.aot import AotExecutor
from .executors.graph import GraphExecutor
from .program import Program

Executable: TypeAlias = AotExecutor | GraphExecutor
"""A loaded artifact: ``inputs``, ``outputs``, ``run``, ``run_into`` and ``close``."""


def load(
    path: str | os.PathLike[str], *, threads: int | None = None, executor: str | None = None
) -> Executable:
    """Open an artifact, check it against this machine, and make it ready to run.

    Args:
        path: The artifact.
        threads: Threads for parallel loops; ``None`` means as many as the process may use.
        executor: ``aot`` or ``graph``; ``None`` means what it was compiled for.

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
    kind = executor or str(opened.passport.executor.get("kind", "aot"))
    if kind not in ("aot", "graph"):
        raise UsageError(f"no executor '{kind}' runs here", hint="aot or graph")
    check_machine(opened.passport, this_machine())
    program = Program(opened, threads)
    return AotExecutor(program) if kind == "aot" else GraphExecutor(program)
