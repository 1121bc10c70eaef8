# SPDX-License-Identifier: Apache-2.0
"""The executor for production: one native call a run; the plan is compiled code."""

from __future__ import annotations

import numpy as np

from ..abi import ArgumentBlock, SafeCall, data_address
from ..program import LoadedProgram
from .planned import PlanExecutor


class AotExecutor(PlanExecutor):
    """Runs a loaded artifact. Safe to share between threads; runs are one at a time.

    Args:
        program: The loaded artifact, owned by the executor from now on.
    """

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__(program)
        plan = program.passport.plan
        self._arguments = ArgumentBlock((*plan.inputs, *plan.outputs), program.leading)
        self._tensors = self._arguments.tensors
        self._call = SafeCall(program.main.function)
        self._call_arguments = (
            program.main.handle or None,
            self._arguments.address,
            self._arguments.count,
            self._arguments.result_address,
        )

    def _execute(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        program = self._program
        with program.lock:
            program.check_open()
            for tensor, array in zip(self._tensors, arrays + results, strict=True):
                tensor.data = data_address(array)
            if program.invoke(self._call, *self._call_arguments):
                program.raise_failure("the model")
