# SPDX-License-Identifier: Apache-2.0
"""What executors of one plan share: the arrays that go in and come out, and closing."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from ..artifact.passport import Passport
from ..artifact.plan import TensorSpec
from ..artifact.random_state import visible
from ..closing import Closing
from ..program import LoadedProgram
from .random_inputs import random_states
from .signature import CheckedSignature, Inputs


class ProgramExecutor(Closing):
    """Owns a loaded artifact.

    Args:
        program: The loaded artifact, owned by the executor from now on.
    """

    def __init__(self, program: LoadedProgram) -> None:
        self._program = program

    @property
    def passport(self) -> Passport:
        """What the artifact says of itself."""
        return self._program.passport

    @property
    def threads(self) -> int:
        """Threads that parallel loops use."""
        return self._program.threads

    def close(self) -> None:
        """Free code, weights and workspace; harmless when repeated."""
        self._program.close()


class PlanExecutor(ProgramExecutor):
    """Runs a loaded artifact by its plan; arguments as of the above."""

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__(program)
        plan = program.passport.plan
        self._inputs = CheckedSignature(plan.inputs, "input")
        self._outputs = CheckedSignature(plan.outputs, "output")
        self._draws = random_states(plan.inputs)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of the model, in its order."""
        return visible(self._inputs.specs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of the model, in its order."""
        return self._outputs.specs

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Compute the outputs, as new arrays by name in the model's order.

        Args:
            inputs: Arrays by name, or in the model's order; NumPy or DLPack on the CPU.

        Raises:
            ModelError: The inputs are not what the model takes. No native code has run.
            PluginError: A region failed.
        """
        arrays = self._arrays(inputs)
        results = self._outputs.allocate()
        self._execute(arrays, results)
        return dict(zip(self._outputs.names, results, strict=True))

    def run_into(self, inputs: Inputs, outputs: Inputs) -> None:
        """Compute the outputs into the caller's arrays, which must overlap nothing.

        Raises:
            ModelError: Inputs or outputs are not what the model takes. No native code has run.
            PluginError: A region failed.
        """
        arrays = self._arrays(inputs)
        self._execute(arrays, self._outputs.check_outputs(outputs, arrays))

    def _arrays(self, inputs: Inputs) -> list[np.ndarray]:
        if self._draws is not None:
            inputs = self._draws.completed(inputs, len(self._inputs.names))
        return self._inputs.check_inputs(inputs)

    @abstractmethod
    def _execute(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> object:
        """Fill ``results``; all arrays are checked."""
