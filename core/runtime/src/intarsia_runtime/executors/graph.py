# SPDX-License-Identifier: Apache-2.0
"""The executor for debugging: walks the plan from Python, one call a step, and times each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from ..artifact.plan import CopyStep, GuardStep, SizesStep
from ..errors import UsageError
from ..program import LoadedProgram
from .planned import PlanExecutor
from .signature import Inputs
from .steps import Measured, PlanWalk, SeeRegion, step_name


class ProfileRow(Struct, frozen=True):
    """Time of one step.

    Attributes:
        label: Operators of a kernel, or accelerator and region.
        nodes: Names of the model's nodes in it.
        milliseconds: Median over the repeats, of all its calls; of an ``if`` or a loop, without
            the steps inside.
        share: Part of the whole run, 0 to 1.
        count: How often it ran; of a loop, how many iterations it made.
    """

    label: str
    nodes: tuple[str, ...]
    milliseconds: float
    share: float
    count: int = 1


class GraphExecutor(PlanExecutor):
    """Runs a loaded artifact step by step. Slower than the ``aot`` executor, with the same results.

    Arguments are those of :class:`.ProgramExecutor`.
    """

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__(program)
        self._walk = PlanWalk(program, program.passport.plan)

    def profile(self, inputs: Inputs, repeat: int = 1) -> tuple[ProfileRow, ...]:
        """Time each step.

        Args:
            inputs: As for :meth:`run`.
            repeat: Runs to take the median of; one more goes before them to warm up.

        Raises:
            UsageError: ``repeat`` is less than 1.

        Returns:
            One row for each step, in the order of the plan; those inside a step come behind it.
        """
        check_repeat(repeat)
        arrays = self._arrays(inputs)
        results = self._outputs.allocate()
        return profile_walk(self._walk, lambda: self._execute(arrays, results), repeat)

    def walk_regions(self, inputs: Inputs, see: SeeRegion) -> dict[str, np.ndarray]:
        """Run, and show what every region took and gave before the next step runs.

        Args:
            inputs: As for :meth:`run`.
            see: Called with the name of a region, its inputs and its outputs; they are views that
                later steps overwrite.

        Returns:
            The outputs.
        """
        arrays = self._arrays(inputs)
        results = self._outputs.allocate()
        with self._program.lock:
            self._walk.run(arrays, results, see)
        return dict(zip(self._outputs.names, results, strict=True))

    def _execute(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> Measured:
        """Carry out the plan; return what its steps took."""
        with self._program.lock:
            return self._walk.run(arrays, results)


def check_repeat(repeat: int) -> None:
    """Refuse to take the median of no runs.

    Raises:
        UsageError: ``repeat`` is less than 1.
    """
    if repeat < 1:
        raise UsageError(f"cannot take the median of {repeat} runs", hint="--repeat 1 or more")


def profile_walk(
    walk: PlanWalk, execute: Callable[[], Measured], repeat: int
) -> tuple[ProfileRow, ...]:
    """Return the median time of each step; ``execute`` carries all out."""
    execute()
    rounds = [execute() for _ in range(repeat)]
    times = [float(middle) for middle in np.median([one.seconds for one in rounds], axis=0)]
    whole = sum(times) or 1.0
    return tuple(
        ProfileRow(
            step_name(step, walk.plan),
            () if isinstance(step, CopyStep | GuardStep | SizesStep) else step.nodes,
            seconds * 1e3,
            seconds / whole,
            count,
        )
        for step, seconds, count in zip(walk.rows, times, rounds[-1].counts, strict=True)
    )
