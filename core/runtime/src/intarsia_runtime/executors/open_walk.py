# SPDX-License-Identifier: Apache-2.0
"""A run of a plan of open sizes step by step: sizes become numbers as the steps come to them."""

from __future__ import annotations

import numpy as np

from ..abi import array_dtype
from ..artifact.close_plan import close_step
from ..artifact.plan import Argument, KernelStep, OpenSizes, RegionStep, SizesStep, Step
from ..open_memory import OpenMemory
from ..program import Program
from .graph import SeeRegion, execute_step, prepare_step, view


class OpenWalk:
    """One run of a program of open sizes whose stage 0 is laid out. The caller holds its lock.

    Args:
        program: The program.
        memory: Its memory.
        arrays: The inputs.

    Attributes:
        results: The outputs, in the model's order; they are there once all steps have run.
    """

    def __init__(self, program: Program, memory: OpenMemory, arrays: list[np.ndarray]) -> None:
        plan = program.passport.plan
        assert plan.open is not None  # the caller runs such a plan
        self._program = program
        self._plan = plan
        self._sizes: OpenSizes = plan.open
        self._memory = memory
        self._arrays = arrays
        self._values = memory.values()
        self.results = [np.empty(0, array_dtype(spec)) for spec in plan.outputs]
        self._make_outputs(0)

    def run(self, see: SeeRegion | None = None) -> list[float]:
        """Carry out all steps; return the seconds that each took.

        Args:
            see: Called with the name of a region, its inputs and its outputs behind each.
        """
        self._program.check_open()
        return [self._step(step, see) for step in self._plan.steps]

    def _step(self, step: Step, see: SeeRegion | None) -> float:
        closed = close_step(step, self._values)
        if isinstance(closed, SizesStep):
            self._read_sizes(closed)
            return 0.0
        prepared = prepare_step(self._program, closed, self._values, self._workspace)
        seconds = execute_step(self._program, prepared, self._arrays, self.results)
        if see is not None and isinstance(closed, RegionStep):
            name = self._plan.regions[closed.region]
            views = [self._view(argument) for argument in closed.args]
            taken = len(self._program.passport.unit(name).inputs)
            see(name, views[:taken], views[taken:])
        return seconds

    def _workspace(self, slot: int) -> np.ndarray:
        stage = self._sizes.stage(self._sizes.slots[slot])
        return self._memory.workspaces[stage][self._memory.offset(slot) :]

    def _view(self, argument: Argument) -> np.ndarray:
        return view(self._program, argument, self._arrays, self.results, self._workspace)

    def _read_sizes(self, step: SizesStep) -> None:
        found = [int(self._view(size.argument).reshape(-1)[0]) for size in step.sizes]
        self._memory.set_stage(step.stage, found)
        self._values = self._memory.values(step.stage)
        self._make_outputs(step.stage)

    def _make_outputs(self, stage: int) -> None:
        for number, spec in enumerate(self._plan.outputs):
            if self._sizes.stage(*spec.shape) == stage:
                self.results[number] = self._memory.new_output(number)


def step_label(step: Step) -> tuple[str, tuple[str, ...]]:
    """Return what profiles call a step of a plan, and the nodes in it."""
    if isinstance(step, SizesStep):
        return "sizes", ()
    if isinstance(step, KernelStep | RegionStep):
        name = step.function if isinstance(step, KernelStep) else f"region {step.region}"
        return step.label or name, step.nodes
    return "copy", ()
