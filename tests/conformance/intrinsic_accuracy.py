# SPDX-License-Identifier: Apache-2.0
"""Measures machine functions of every backend against exact values.

``python -m tests.conformance.intrinsic_accuracy`` writes ``docs/reference/intrinsics.json``
(minutes), from which ``python -m tests.architecture.reference_pages`` makes the page.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intarsia
from intarsia_ir.graph.expr import Function, Var, call, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.op import Op, OpAttrs, OpKind
from intarsia_ir.graph.types import TensorType
from intarsia_ir.tir.expr import intrinsic
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.tensor import Tensor, compute
from intarsia_runtime.dtype import DType

from .exact_functions import exact, sweep, units

TARGETS = ("llvm", "c", "cuda -emulate")
DTYPES = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)
POINTS = 8192
RESULTS = Path(__file__).parents[2] / "docs" / "reference" / "intrinsics.json"
FUNCTIONS = tuple(function for function in Intrinsic if not function.keeps_bits)
"""Functions of numbers; what reads bits is exact."""
FLUSHED = frozenset({Intrinsic.SIGMOID})  # float32 results that are subnormal may be 0
EITHER_ZERO = frozenset({Intrinsic.FMAX, Intrinsic.FMIN})
"""Of zeros of both signs C lets these return either."""


def operator_of(function: Intrinsic) -> type[Op]:
    """An operator that is one machine function, in the element type of its operands."""

    def type_rule(attrs: OpAttrs, *types: TensorType) -> TensorType:
        dtype = DType.BOOL if function.is_predicate else types[0].dtype
        return TensorType(types[0].shape, dtype)

    def element(attrs: OpAttrs, *tensors: Tensor) -> Tensor:
        return compute(tensors[0].shape, lambda i: intrinsic(function, *(x[i] for x in tensors)))

    members = {
        "name": f"intrinsic.{function.value}",
        "kind": OpKind.ELEMWISE,
        "type_rule": staticmethod(type_rule),
        "compute": staticmethod(element),
    }
    return type(function.value, (Op,), members)


def results(
    target: str, dtype: DType, operands: dict[Intrinsic, Sequence[np.ndarray]]
) -> dict[Intrinsic, np.ndarray]:
    """Compile all functions into one module, and run it."""
    params: list[Var] = []
    calls = []
    for function, columns in operands.items():
        own = [
            Var(f"{function.value}{n}", TensorType(column.shape, dtype))
            for n, column in enumerate(columns)
        ]
        params += own
        calls.append(call(operator_of(function), *own))
    module = IRModule({"main": Function(tuple(params), make_tuple(calls))})
    given = [column for columns in operands.values() for column in columns]
    with intarsia.build(module, target).load(threads=1) as executable:
        found = [np.array(value) for value in executable.run(given).values()]
    return dict(zip(operands, found, strict=True))


def measure(
    target: str, dtype: DType, points: int, functions: Sequence[Intrinsic] = FUNCTIONS
) -> dict[str, float]:
    """The largest error of each function, in units of the last place."""
    numpy_type = np.dtype(dtype.value)
    operands = {function: sweep(function, numpy_type, points) for function in functions}
    found = results(target, dtype, operands)
    worst: dict[str, float] = {}
    for function, columns in operands.items():
        want, rest = _exact(function, numpy_type, points, columns)
        got = found[function]
        if function in EITHER_ZERO:
            got = np.where((got == 0) & (want == 0), want, got)
        if function in FLUSHED and dtype is DType.FLOAT32:
            tiny = np.abs(want) < np.finfo(np.float32).tiny
            got = np.where((got == 0) & tiny, want, got)
        worst[function.value] = float(units(got, want, rest).max())
    return worst


_KNOWN: dict[tuple[Intrinsic, str, int], tuple[np.ndarray, np.ndarray]] = {}


def _exact(
    function: Intrinsic, dtype: np.dtype[Any], points: int, columns: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The exact values, worked out once for all targets."""
    key = (function, dtype.name, points)
    if key not in _KNOWN:
        _KNOWN[key] = exact(function, columns)
    return _KNOWN[key]


def main() -> int:
    """Measure all and write the file; exit code 1 if a special value is wrong anywhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="of each function and type")
    parser.add_argument("--target", action="append", help="default: all; may be repeated")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    written: dict[str, dict[str, dict[str, float]]] = {}
    for dtype in DTYPES:
        for target in given.target or TARGETS:
            worst = measure(target, dtype, given.points)
            rounded = {
                name: math.ceil(100 * value) / 100
                for name, value in worst.items()
                if math.isfinite(value)
            }
            wrong = sorted(set(worst) - set(rounded))
            print(f"{target}, {dtype}: {rounded}, wrong: {wrong}", flush=True)
            written.setdefault(target, {})[dtype.value] = {**rounded, **dict.fromkeys(wrong, -1.0)}
    machine = {
        "points": given.points,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }
    text = json.dumps({"schema": 1, **machine, "targets": written}, indent=1, sort_keys=True)
    given.output.write_text(text + "\n", encoding="utf-8")
    return int(
        any(value < 0 for one in written.values() for row in one.values() for value in row.values())
    )


if __name__ == "__main__":
    sys.exit(main())
