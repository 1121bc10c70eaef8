# SPDX-License-Identifier: Apache-2.0
"""Where the roundings of an accelerator differ from the operators' definitions.

``python -m tests.bench.roundings TARGET MODEL.onnx`` takes a quantized model apart: every call with
an 8-bit result is given what the definitions compute before it, so that no difference is handed on,
and its result is compared with the definition's. It prints Markdown: for each operator the number
of calls, of elements and of those that differ, and by how many quanta at most; then how far ONNX
Runtime with all its optimizations is from itself with none.

More words are the command of a Python that runs the result, where this machine cannot: it needs
NumPy and what the artifact's loaders need.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import intarsia
from intarsia.driver.artifact import Artifact
from intarsia_ir.graph.expr import Call, Constant, Expr, Function, Var, make_tuple, tensor_type
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.dtype import DType

Array = np.ndarray

_ELSEWHERE = """
import sys
import numpy as np
from intarsia_runtime.load import load
found = load(sys.argv[1]).run(dict(np.load(sys.argv[2])))
np.savez(sys.argv[3], **{str(place): value for place, value in enumerate(found.values())})
"""


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        op: Its name.
        calls: How many of its calls have an 8-bit result.
        elements: Of those results.
        differ: Elements that differ from the definition.
        most: By how many quanta at most.
    """

    op: str
    calls: int
    elements: int
    differ: int
    most: int


def measure(path: Path, target: str, python: Sequence[str] = ()) -> list[Row]:
    """Run every call by itself on what the definitions compute before it."""
    module = PREPARE.run(intarsia.from_onnx(path), remarks=Remarks())
    wanted = [call for call in calls(module.main) if is_narrow(call)]
    values = dict(zip(every_value(module.main), run_definitions(module.main), strict=True))
    apart, given = take_apart(wanted, values)
    found = run(intarsia.build(IRModule.from_function(apart), target), given, python)
    differences: dict[str, list[Array]] = {}
    for call, result in zip(wanted, found, strict=True):
        away = np.abs(np.asarray(result).astype(int) - values[call].astype(int))
        differences.setdefault(call.name, []).append(away.reshape(-1))
    return [count(op, arrays) for op, arrays in sorted(differences.items())]


def run(artifact: Artifact, given: dict[str, Array], python: Sequence[str]) -> list[Array]:
    """Return the results in order; of another Python if there is one."""
    if not python:
        return [np.asarray(value) for value in artifact.load().run(given).values()]
    with tempfile.TemporaryDirectory() as folder:
        model, inputs, results = (Path(folder) / name for name in ("m.intarsia", "i.npz", "o.npz"))
        artifact.save(model)
        np.savez(inputs, allow_pickle=False, **given)
        words = (str(model), str(inputs), str(results))
        subprocess.run([*python, "-c", _ELSEWHERE, *words], check=True, timeout=600)
        found = np.load(results)
        return [found[str(place)] for place in range(len(found.files))]


def count(op: str, arrays: Iterable[Array]) -> Row:
    """Return the row of one operator from its calls' differences."""
    several = list(arrays)
    away = np.concatenate(several)
    return Row(op, len(several), away.size, int(np.count_nonzero(away)), int(away.max()))


def is_narrow(call: Call) -> bool:
    """Whether a call has an 8-bit result."""
    return tensor_type(call).dtype in (DType.INT8, DType.UINT8)


def every_value(function: Function) -> list[Expr]:
    """Return what takes part: parameters and calls, the latter in an order they can run in."""
    return [*function.params, *calls(function)]


def run_definitions(function: Function) -> list[Array]:
    """Return the values of :func:`every_value` on random inputs, as the definitions say."""
    rng = np.random.default_rng(1)
    inputs = {
        param.name: rng.standard_normal(tensor_type(param).static_shape).astype(np.float32)
        for param in function.params
    }
    whole = Function(function.params, make_tuple(list(calls(function))))
    return [*inputs.values(), *evaluate(whole, inputs)]


def take_apart(
    wanted: Iterable[Call], values: Mapping[Expr, Array]
) -> tuple[Function, dict[str, Array]]:
    """Return a function whose results are the calls, each on parameters of its own values."""
    params: dict[Expr, Var] = {}

    def param(expr: Expr) -> Expr:
        if isinstance(expr, Constant):
            return expr
        return params.setdefault(expr, Var(f"v{len(params)}", expr.type))

    alone = [Call(call.op, tuple(map(param, call.args)), call.attrs, call.type) for call in wanted]
    function = Function(tuple(params.values()), make_tuple(alone))
    return function, {var.name: values[expr] for expr, var in params.items()}


def between_sessions(path: Path) -> tuple[float, float]:
    """Return how many steps ONNX Runtime is from itself without optimizations, and the share."""
    rng = np.random.default_rng(1)
    found: list[Array] = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = vars(onnxruntime.GraphOptimizationLevel)[level]
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        given = {
            spec.name: rng.standard_normal(spec.shape).astype(np.float32)
            for spec in session.get_inputs()
        }
        found.append(np.asarray(session.run(None, given)[0]))
        rng = np.random.default_rng(1)
    step = np.diff(np.unique(found[0])).min()
    return float(np.abs(found[0] - found[1]).max() / step), float(np.mean(found[0] != found[1]))


def print_rows(rows: Iterable[Row]) -> str:
    """Return the table."""
    lines = ["| operator | calls | elements | differ | most |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.op}` | {row.calls} | {row.elements:,} | {row.differ:,} | {row.most} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(print_rows(measure(Path(sys.argv[2]), sys.argv[1], sys.argv[3:])))
    steps, share = between_sessions(Path(sys.argv[2]))
    print(f"\nONNX Runtime, all optimizations and none: {steps:.0f} steps, {share:.0%} of elements")
