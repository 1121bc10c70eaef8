# SPDX-License-Identifier: Apache-2.0
"""How much memory a run takes beside weights, inputs and outputs: what is reserved, and touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.executors.aot import AotExecutor
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.program import LoadedProgram

LINE = 64


@dataclass(frozen=True)
class Memory:
    """Bytes of a workspace.

    Attributes:
        reserved: As many as are allocated.
        touched: Of these, the cache lines that a run writes.
    """

    reserved: int
    touched: int


def measure_memory(artifact: Path, inputs: Mapping[str, np.ndarray], threads: int) -> Memory:
    """Return what a run of an artifact takes."""
    opened = open_artifact(artifact)
    program = LoadedProgram(opened, threads)
    is_open = opened.passport.plan.open is not None
    executor = OpenExecutor(program) if is_open else AotExecutor(program)
    try:
        before = _lines_written(program, executor, inputs, 0x5A)
        again = _lines_written(program, executor, inputs, 0xA5)
        workspaces = _workspaces(program)
        written = sum(int((a | b).sum()) for a, b in zip(before, again, strict=True))
        return Memory(sum(memory.nbytes for memory in workspaces), written * LINE)
    finally:
        executor.close()


def _workspaces(program: LoadedProgram) -> Sequence[np.ndarray]:
    return [program.workspace] if program.open is None else program.open.workspaces


def _lines_written(
    program: LoadedProgram,
    executor: OpenExecutor | AotExecutor,
    inputs: Mapping[str, np.ndarray],
    value: int,
) -> list[np.ndarray]:
    """Return for each workspace which of its lines a run changes that is full of one byte."""
    executor.run(dict(inputs))
    workspaces = _workspaces(program)
    for memory in workspaces:
        memory[...] = value
    executor.run(dict(inputs))
    changed: list[np.ndarray] = []
    for memory in workspaces:
        rows = np.zeros((-(-memory.nbytes // LINE), LINE), np.bool_)
        rows.reshape(-1)[: memory.nbytes] = memory != value
        changed.append(rows.any(axis=1))
    return changed


@dataclass(frozen=True)
class MemoryRow:
    """An artifact of open sizes beside one for these sizes alone, at a number of threads."""

    name: str
    sizes: Mapping[str, int]
    threads: int
    ours: Memory
    fixed: Memory

    @property
    def reserved(self) -> float:
        """Reserved bytes by those of fixed sizes."""
        return self.ours.reserved / max(self.fixed.reserved, 1)

    @property
    def touched(self) -> float:
        """Touched bytes by those of fixed sizes."""
        return self.ours.touched / max(self.fixed.touched, 1)

    def line(self) -> str:
        """Return a row of the table."""
        words = " ".join(f"{key}={value}" for key, value in self.sizes.items())
        kib = " | ".join(
            f"{memory.reserved >> 10} | {memory.touched >> 10}"
            for memory in (self.ours, self.fixed)
        )
        ratios = f"{self.reserved:.2f} | {self.touched:.2f}"
        return f"| {self.name} | {words} | {self.threads} | {kib} | {ratios} |"


def print_memory(rows: Sequence[MemoryRow]) -> None:
    """Print a table and the geometric means."""
    print("| model | sizes | threads | KiB reserved | touched | fixed | touched | ratio | ratio |")
    print(*(row.line() for row in rows), sep="\n", flush=True)
    reserved = geometric_mean(row.reserved for row in rows if row.fixed.reserved)
    touched = geometric_mean(row.touched for row in rows if row.fixed.touched)
    print(f"geometric mean: {reserved:.3f} reserved, {touched:.3f} touched")
