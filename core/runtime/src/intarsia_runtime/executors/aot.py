# SPDX-License-Identifier: Apache-2.0
"""The executor for production: one native call a run; the plan is compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ..abi import ArgumentBlock, SafeCall, point_at
from ..errors import ModelError
from ..program import LoadedProgram
from .planned import PlanExecutor

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"


class AotExecutor(PlanExecutor):
    """Runs a loaded artifact. Safe to share between threads; runs are one at a time.

    Arguments are those of :class:`.ProgramExecutor`.
    """

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__(program)
        plan = program.passport.plan
        self._arguments = ArgumentBlock((*plan.inputs, *plan.outputs), program.leading)
        self._tensors = self._arguments.tensors
        self._shapes: Shapes = tuple(spec.shape for spec in plan.inputs)
        self._results: Shapes = tuple(spec.shape for spec in plan.outputs)
        self._call = SafeCall(program.main.function)
        self._call_arguments = (
            program.main.handle or None,
            self._arguments.address,
            self._arguments.count,
            self._arguments.result_address,
        )

    def output_shapes(self, shapes: Shapes) -> Shapes:
        """Return the shapes of the outputs, in the model's order.

        Raises:
            ModelError: The model takes no inputs of these shapes.
        """
        if shapes != self._shapes:
            raise ModelError(f"the inputs must have the shapes {self._shapes}, got {shapes}")
        return self._results

    def run_at(self, shapes: Shapes, addresses: Sequence[int]) -> None:
        """Compute outputs from inputs in memory of the caller, who answers for all of it.

        Args:
            shapes: Shapes of the inputs; their elements lie in order, and have the model's types.
            addresses: Of the inputs, then of memory for the outputs, which overlaps nothing.

        Raises:
            ModelError: The model takes no inputs of these shapes.
        """
        if shapes != self._shapes:
            self.output_shapes(shapes)
        program = self._program
        with program.lock:
            program.check_open()
            for tensor, address in zip(self._tensors, addresses, strict=True):
                tensor.data = address
            status = program.invoke(self._call, *self._call_arguments)
            if status:
                program.raise_failure("the model", status)

    def _execute(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        program = self._program
        with program.lock:
            program.check_open()
            point_at(self._tensors, arrays + results)
            status = program.invoke(self._call, *self._call_arguments)
            if status:
                program.raise_failure("the model", status)
