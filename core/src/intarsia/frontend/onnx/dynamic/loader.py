# SPDX-License-Identifier: Apache-2.0
"""Makes a program ready to run; found at run time by its name among the loaders."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from functools import cache

from ....errors import ArtifactError
from ....runtime.loading import HostedProgram, ProgramRequest, ValueSpec
from ..graph import ValueInfo
from ..kernels import Value
from ..reader import standard_bodies
from .evaluator import Evaluator, Scope
from .program import PieceStep, Program
from .program_json import parse_program

LOADER = "onnx-program"
"""Name of this loader in the entry-point group ``intarsia.loaders``."""


def load(request: ProgramRequest) -> HostedProgram:
    """Read a program from the files of its unit.

    Raises:
        ArtifactError: They are damaged, or a piece is missing.
    """
    return _Loaded(parse_program(request.files), request)


class _Loaded(HostedProgram):
    """A program with its pieces, ready to run."""

    def __init__(self, program: Program, request: ProgramRequest) -> None:
        for step in program.steps:
            if isinstance(step, PieceStep) and step.name not in request.pieces:
                raise ArtifactError(f"the program calls piece '{step.name}', which is not there")
        self._program = program
        self._pieces = request.pieces
        self._evaluator = Evaluator(cache(standard_bodies))
        self._aliases: dict[str, list[str]] = {}
        for name, source in program.aliases.items():
            self._aliases.setdefault(source, []).append(name)
        self.inputs = tuple(_spec(info) for info in program.inputs)
        self.outputs = program.outputs

    def run(self, values: Sequence[Value]) -> list[Value]:
        """Carry out the steps; values come and go in the model's order."""
        program = self._program
        constants: dict[str, Value] = dict(program.constants)
        given = {info.name: value for info, value in zip(program.inputs, values, strict=True)}
        scope: Scope = ChainMap(given, constants)
        for name in list(given):
            self._alias(scope, name)
        for step in program.steps:
            if isinstance(step, PieceStep):
                operands = [scope[name] for name in step.inputs]
                results = self._pieces[step.name](operands)
                scope.update(zip(step.outputs, results, strict=True))
            else:
                self._evaluator.run((step,), scope, program.opset)
            for name in step.outputs:
                self._alias(scope, name)
        return [scope[name] for name in program.outputs]

    def _alias(self, scope: Scope, source: str) -> None:
        for name in self._aliases.get(source, ()):
            scope[name] = scope[source]


def _spec(info: ValueInfo) -> ValueSpec:
    if info.type is None:
        return ValueSpec(info.name, info.kind, None)
    shape = tuple(size if isinstance(size, int) else size.name for size in info.type.shape)
    return ValueSpec(info.name, info.type.dtype.value, shape)
