# SPDX-License-Identifier: Apache-2.0
"""What ``tune`` can measure: the kernels of a model that a schedule space is for, one by one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia.driver.arrays import random_inputs
from intarsia.driver.artifact import Artifact
from intarsia.driver.importing import import_model
from intarsia.driver.pack import pack
from intarsia.driver.request import BuildRequest
from intarsia.driver.stages import (
    compile_kernels,
    lower_rest,
    partition_module,
    rewrite_rest,
    spaces_of,
)
from intarsia.driver.tuned import machines_of
from intarsia.host.host import Host
from intarsia.target.target import CompositeTarget
from intarsia_ir.graph.expr import Constant
from intarsia_ir.graph.inputs import check_static
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.walk import post_order
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.space import Choice, ScheduleSpace, ScheduleSpaces, Tuned, signature_of
from intarsia_loops.fuse import KernelCall, fuse
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.load import Executable

from .verify import compare

ROUND_SECONDS = 0.002
"""Time that each of two kernels gets in one round, at least one run; less than a scheduler's."""

_MOST_SETS = 32
_COLD_BYTES = 64 << 20  # more than this is in no cache anyway


class Task(Struct, frozen=True):
    """A kernel to tune.

    Attributes:
        space: What can be chosen.
        signature: Of its group.
        group: The fused group.
        uses: How often the model calls it.
        weights: Numbers of the parameters that are weights.
    """

    space: ScheduleSpace
    signature: str
    group: FusedGroup
    uses: int
    weights: frozenset[int]


class TuneJob(Struct, frozen=True):
    """A model and a target, as plain data that a child process can be given.

    Attributes:
        model: The ONNX file.
        target: The canonical target.
        shapes: Of inputs.
        disabled: Plugins to leave out.
        threads: Threads of a run.
    """

    model: Path
    target: str
    shapes: Mapping[str, tuple[int, ...]]
    disabled: tuple[str, ...] = ()
    threads: int = 1


class MeasuredChoice(Struct, frozen=True):
    """What was measured of a choice.

    Attributes:
        ratio: Its time by that of the rules' kernel, each the least of all rounds.
        microseconds: Its time.
        wrong: Whether its results differ from those of the rules' kernel.
    """

    ratio: float
    microseconds: float
    wrong: bool = False


class Tasks(Struct, frozen=True):
    """The kernels of a model that can be tuned for a target.

    Attributes:
        host: Knows the fallback's hooks.
        target: What is compiled for.
        spaces: What the fallback lets be tuned.
        machine: Name under which measurements are kept.
        tasks: By signature, in the order of the model.
        weight_bytes: Of all weights that the fallback's part of the model reads.
    """

    host: Host
    target: CompositeTarget
    spaces: ScheduleSpaces
    machine: str
    tasks: Mapping[str, Task]
    weight_bytes: int


def tasks_of(
    host: Host, target: CompositeTarget, model: Path, shapes: Mapping[str, Sequence[int]]
) -> Tasks:
    """Return the kernels of a model that can be tuned.

    Raises:
        UnsupportedError: The fallback has no schedule spaces; or as a build.
    """
    spaces = spaces_of(host, target.fallback)
    if spaces is None:
        raise UnsupportedError(
            f"nothing of '{target.fallback.kind.name}' can be tuned: it declares no schedule spaces"
        )
    module = import_model(model, shapes)
    check_static(module)
    prepared = PREPARE.run(module, remarks=Remarks())
    partitioned = partition_module(host, prepared, target)
    rest = rewrite_rest(host, partitioned.module, target.fallback)
    tasks: dict[str, Task] = {}
    for item in fuse(rest.main, matrices_apart=True).items:  # as the backends with spaces do
        anchor = item.group.anchor if isinstance(item, KernelCall) else None
        space = None if anchor is None else spaces.of(anchor.name)
        if space is None or not isinstance(item, KernelCall):
            continue
        signature = signature_of(item.group)
        weights = frozenset(
            at for at, value in enumerate(item.args) if isinstance(value.node, Constant)
        )
        known = tasks.get(signature) or Task(space, signature, item.group, 0, weights)
        tasks[signature] = replace(known, uses=known.uses + 1)
    machine = machines_of(host, target, spaces)[0]
    constants = (n.data.nbytes for n in post_order(rest.main.body) if isinstance(n, Constant))
    return Tasks(host, target, spaces, machine, MappingProxyType(tasks), sum(constants))


def open_job(job: TuneJob) -> Measurer:
    """Prepare to measure the kernels of a job; called in a child process."""
    host = Host(disabled=job.disabled)
    return Measurer(tasks_of(host, host.target(job.target), job.model, job.shapes), job.threads)


class Measurer:
    """Compiles kernels alone and times them in turn with those that the rules choose.

    Args:
        tasks: What can be measured.
        threads: Threads of a run.
    """

    def __init__(self, tasks: Tasks, threads: int) -> None:
        self._tasks = tasks
        self._threads = threads
        self._known: tuple[str, _TimedKernel] | None = None

    def measure(self, signature: str, choice: Choice, rounds: int) -> MeasuredChoice:
        """Time a choice against the rules.

        Raises:
            UnsupportedError: The schedule does not take the choice.
            IntarsiaError: Compiling or running it fails.
        """
        task = self._tasks.tasks[signature]
        if self._known is None or self._known[0] != signature:
            self._known = (signature, self._kernel(task, {}))
        rules = self._known[1]
        return _compare(rules, self._kernel(task, choice) if choice else rules, rounds)

    def _kernel(self, task: Task, choice: Choice) -> _TimedKernel:
        executable = self._artifact(task, choice).load(threads=self._threads)
        size = min(self._tasks.weight_bytes, _COLD_BYTES)
        return _TimedKernel(executable, task.weights, size)

    def _artifact(self, task: Task, choice: Choice) -> Artifact:
        """Compile one kernel, with its weights as inputs."""
        host, target = self._tasks.host, dataclasses.replace(self._tasks.target, accelerators=())
        module = IRModule({"main": task.group.function})
        request = dataclasses.replace(BuildRequest.plain(module, target, host), name="kernel")
        partitioned = partition_module(host, module, target)
        tuned = Tuned(self._tasks.spaces, _Always(choice))
        lowered = lower_rest(host, partitioned.module, (), target.fallback, tuned=tuned)
        if choice and not lowered.chosen:
            raise UnsupportedError(f"the schedule of '{task.space.operator}' refuses {choice}")
        main = compile_kernels(host, lowered.module, target.fallback)
        return pack(request, partitioned, (main,), lowered)


class _Always(Struct, frozen=True):
    """The same choice for every kernel."""

    choice: Choice

    def __call__(self, space: ScheduleSpace, signature: str) -> Choice | None:
        return self.choice


class _TimedKernel:
    """A compiled kernel that is called with one copy of its weights after the other.

    In the model, other weights pass through the caches between two runs of a kernel; what it
    computes from is still there.
    """

    def __init__(self, executable: Executable, weights: frozenset[int], model_bytes: int) -> None:
        self._executable = executable
        first = random_inputs(executable.inputs, seed=0)
        moved = {name for at, name in enumerate(first) if at in weights}
        size = sum(first[name].nbytes for name in moved)
        count = min(_MOST_SETS, max(1, model_bytes // max(1, size))) if moved else 1
        self._sets = [first]
        for _ in range(count - 1):
            self._sets.append({n: a.copy() if n in moved else a for n, a in first.items()})
        self._at = 0

    def result(self) -> dict[str, np.ndarray]:
        """What it computes of the first operands."""
        found = self._executable.run(self._sets[0])
        return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}

    def seconds(self, runs: int) -> float:
        """Run it; return the seconds of one run."""
        run, sets, at = self._executable.run, self._sets, self._at
        start = time.perf_counter()
        for number in range(at, at + runs):
            run(sets[number % len(sets)])
        self._at = (at + runs) % len(sets)
        return (time.perf_counter() - start) / runs


def _compare(rules: _TimedKernel, chosen: _TimedKernel, rounds: int) -> MeasuredChoice:
    expected, found = rules.result(), chosen.result()
    wrong = any(not compare(name, found[name], array).ok for name, array in expected.items())
    runs = max(1, int(ROUND_SECONDS / max(chosen.seconds(1), rules.seconds(1), 1e-7)))
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        theirs.append(rules.seconds(runs))
        ours.append(chosen.seconds(runs))
    # Other work on the machine only ever adds time.
    return MeasuredChoice(min(ours) / min(theirs), 1e6 * min(ours), wrong)
