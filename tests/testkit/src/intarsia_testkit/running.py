# SPDX-License-Identifier: Apache-2.0
"""Compiling and running what the checks make, always through the public pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.driver.artifact import Artifact
from intarsia.driver.build import build
from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
    Constant,
    Expr,
    Function,
    Var,
    call,
    constant,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError

from .cases.case import ROUNDED, Case, difference

if TYPE_CHECKING:
    from intarsia.host.host import Host
    from intarsia_runtime.load import Executable

    from .subject import Subject


def compile_module(
    subject: Subject, module: IRModule, *, host: Host | None = None, options: str = ""
) -> Artifact:
    """Compile for the subject's target; every call that it accepts goes to it."""
    made = host or subject.host()
    target = subject.composite(made, options)
    return build(module, target, host=made, plan=Plan.GREEDY)


def not_run(subject: Subject) -> None:
    """End the check as exempt if the subject can only be compiled on this machine."""
    if subject.compile_only:
        from .marks import COMPILED, exempt  # a child of the kit runs without pytest

        exempt(f"{COMPILED}: {subject.compile_only}")


def load_artifact(
    subject: Subject, artifact: Artifact, *, threads: int = 2, executor: str | None = None
) -> Executable:
    """Load for running; where the subject can only be compiled, the check ends here as exempt."""
    not_run(subject)
    return artifact.load(threads=threads, executor=executor)


def run_artifact(
    subject: Subject, artifact: Artifact, inputs: Mapping[str, np.ndarray], *, threads: int = 2
) -> list[np.ndarray]:
    """Load, run once, close; the outputs in order."""
    executable = load_artifact(subject, artifact, threads=threads)
    try:
        found = executable.run(dict(inputs))
        names = [spec if isinstance(spec, str) else spec.name for spec in executable.outputs]
        return [np.array(found[name]) for name in names]
    finally:
        executable.close()


def wrong_results(
    module: IRModule, inputs: Mapping[str, np.ndarray], found: Sequence[np.ndarray]
) -> str:
    """What is wrong with the outputs of a graph, or an empty string.

    Each call that rounds to an integer may round a tie either way, as in a case of it alone.
    """
    apart = sum(call.op.name in ROUNDED for call in calls(module.main))
    with np.errstate(all="ignore"):
        wanted = evaluate(module.main, dict(inputs), module)
    for number, (mine, reference) in enumerate(zip(found, wanted, strict=True)):
        message = difference(mine, np.asarray(reference), sums=True, slack=20, apart=apart)
        if message:
            return f"output {number}: {message}"
    return ""


class Batch:
    """Cases of one module: each a call with inputs of its own, named by its number.

    Args:
        cases: What to call.
        fixed: Make every operand but the first a constant.
    """

    def __init__(self, cases: Sequence[Case], *, fixed: bool) -> None:
        self.cases = cases
        self.inputs: dict[str, np.ndarray] = {}
        params: list[Var] = []
        self.results: list[list[Expr]] = []
        for number, case in enumerate(cases):
            operands: list[Var | Constant] = []
            for place, array in enumerate(case.operands):
                if fixed and place:
                    operands.append(constant(array))
                    continue
                var = Var(f"x{len(params)}", TensorType(array.shape, DType(array.dtype.name)))
                params.append(var)
                operands.append(var)
                self.inputs[var.name] = array
            self.results.append(_results(case, operands, f"case{number}"))
        outputs = [one for group in self.results for one in group]
        names = tuple(f"y{number}" for number in range(len(outputs)))
        self.main = Function(tuple(params), make_tuple(outputs), names)

    def run(self, subject: Subject, host: Host) -> tuple[Artifact, list[list[np.ndarray]]]:
        """Compile and run; the artifact, and the results of every case.

        There are no results where the subject can only be compiled.
        """
        artifact = compile_module(subject, IRModule.from_function(self.main), host=host)
        if subject.compile_only:
            return artifact, [[] for _ in self.results]
        found = iter(run_artifact(subject, artifact, self.inputs))
        return artifact, [[next(found) for _ in group] for group in self.results]


def _results(case: Case, operands: Sequence[Expr], at: str) -> list[Expr]:
    op = OPERATORS[case.name]
    made = call(op, *operands, attrs=op.Attrs(**case.attrs), span=Span(at, case.name))
    if isinstance(made.type, TupleType):
        return [get_item(made, index) for index in range(len(made.type.fields))]
    return [made]


def why(error: Exception) -> str:
    """An error in one line."""
    text = str(error) if isinstance(error, IntarsiaError) else f"{type(error).__name__}: {error}"
    return text.replace("\n", " ")[:600]


__all__ = [
    "Batch",
    "compile_module",
    "load_artifact",
    "not_run",
    "run_artifact",
    "why",
    "wrong_results",
]
