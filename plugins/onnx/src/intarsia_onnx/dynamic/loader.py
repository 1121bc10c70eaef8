# SPDX-License-Identifier: Apache-2.0
"""Makes a program ready to run; found at run time by its name among the loaders."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.artifact.unit_json import interpreting
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.loading import (
    HostedProgram,
    ProgramRequest,
    StepSeen,
    WatchSteps,
    reads_formats,
)

from ..graph import Graph
from ..kernels import Value
from ..reader import standard_bodies
from .evaluator import Evaluator, Scope
from .program import DynamicModel, PieceStep, Program, Step, value_spec
from .program_json import PROGRAM_FILE, SCHEMA, check_names, parse_program

LOADER = "onnx-program"
"""Name of this loader in the entry-point group ``intarsia.loaders``."""


KEPT_MEMORY = 31 << 20
"""Bytes of a block whose only use is that it was freed.

The C library of Linux gives free memory back to the system, unless a block half as large was freed
before; it counts blocks of up to 32 MiB. The arrays of a run are freed at its end, and the next run
would have to ask for each page of them again, which took longer than the arithmetic.
"""


@reads_formats(SCHEMA)
def load(request: ProgramRequest) -> HostedProgram:
    """Read a program from the files of its unit.

    Raises:
        ArtifactError: They are damaged, or a piece is missing.
    """
    program = parse_program(request.files)
    with interpreting(PROGRAM_FILE):
        check_names(program)
        return _Loaded(program, request)


def run_reference(model: DynamicModel, values: Sequence[Value]) -> list[Value]:
    """Run a program with the NumPy definition of every operator, those of pieces too.

    Args:
        model: The program and its pieces.
        values: Its inputs, in the model's order.

    Raises:
        ModelError: The inputs do not fit, or a node cannot take its operands.
        UnsupportedError: A node asks for what there is not.
    """
    calls = {name: partial(_evaluate, piece) for name, piece in model.pieces.items()}
    return _Loaded(model.program, ProgramRequest({}, calls)).run(values)


def _evaluate(piece: IRModule, values: Sequence[Value]) -> Sequence[Value]:
    named = zip(piece.main.params, values, strict=True)
    return evaluate(piece.main, {param.name: np.asarray(value) for param, value in named}, piece)


class _Loaded(HostedProgram):
    """A program with its pieces, ready to run."""

    def __init__(self, program: Program, request: ProgramRequest) -> None:
        for name in sorted(program.called - request.pieces.keys()):
            raise ArtifactError(f"the program calls piece '{name}', which is not there")
        self._program = program
        self._pieces = request.pieces
        self._evaluator = Evaluator(cache(standard_bodies), _fixed(program), request.pieces)
        np.empty(KEPT_MEMORY, np.uint8)  # freed at once
        self._aliases: dict[str, list[str]] = {}
        for name, source in program.aliases.items():
            self._aliases.setdefault(source, []).append(name)
        self.inputs = tuple(value_spec(info) for info in program.inputs)
        self.outputs = program.outputs

    def run(self, values: Sequence[Value], watch: WatchSteps | None = None) -> list[Value]:
        """Carry out the steps; values come and go in the model's order."""
        program = self._program
        scope: Scope = dict(program.constants)
        for info, value in zip(program.inputs, values, strict=True):
            scope[info.name] = value
            self._alias(scope, info.name)
        with np.errstate(all="ignore"):
            for step in program.steps:
                operands = [scope[name] if name else None for name in step.inputs]
                start = time.perf_counter()
                self._carry_out(step, operands, scope)
                if watch is not None:
                    seconds = time.perf_counter() - start
                    found = [scope[name] for name in step.outputs if name]
                    watch(StepSeen(*_called(step), operands, found, seconds))
                for name in step.outputs if self._aliases else ():
                    self._alias(scope, name)
        return [scope[name] for name in program.outputs]

    def _carry_out(self, step: Step, operands: Sequence[Value], scope: Scope) -> None:
        """Run a piece or a node on operands, which a scope has, and add the results to it."""
        if not isinstance(step, PieceStep):
            self._evaluator.step(step, scope, self._program.opset)
            return
        results = self._pieces[step.name](operands)
        if len(results) != len(step.outputs):
            raise ArtifactError(
                f"the program wants {len(step.outputs)} values of piece '{step.name}', "
                f"which gives {len(results)}"
            )
        scope.update(zip(step.outputs, results, strict=True))

    def _alias(self, scope: Scope, source: str) -> None:
        for name in self._aliases.get(source, ()):
            scope[name] = scope[source]


def _fixed(program: Program) -> frozenset[int]:
    """Return the identities of the arrays of a program, of graphs in its nodes too."""
    arrays = [*program.constants.values()]
    pending = [value for node in program.nodes for value in node.attrs.values()]
    while pending:
        graph = pending.pop()
        if isinstance(graph, Graph):
            arrays += graph.initializers.values()
            pending += [value for node in graph.nodes for value in node.attrs.values()]
    return frozenset(id(array) for array in arrays if not array.flags.writeable)


def _called(step: Step) -> tuple[str, str]:
    """The label of a step and the name of its node."""
    return (step.name, "") if isinstance(step, PieceStep) else (step.op_type, step.span.name)
