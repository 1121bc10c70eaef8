# SPDX-License-Identifier: Apache-2.0
"""Calls by name, whole functions as regions, and what the definitions of operators give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia_ir.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    TupleGetItem,
    Var,
    call,
    constant,
    make_tuple,
)
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support, SupportTable
from intarsia_runtime.dtype import DType


def fresh(*shape: int, positive: bool = False, seed: float = 0) -> np.ndarray:
    """Random float32 numbers that depend on shape and seed only; at least 0.1 if ``positive``."""
    rng = np.random.default_rng([int(seed * 1e6), *shape])
    data = rng.standard_normal(shape).astype(np.float32)
    return np.abs(data) + np.float32(0.1) if positive else data


def var(name: str, *shape: int, dtype: DType | str = DType.FLOAT32) -> Var:
    """A parameter."""
    return Var(name, TensorType(shape, DType(dtype)))


def weight(*shape: int, positive: bool = False, seed: float = 1) -> Constant:
    """A random float32 constant; see :func:`fresh`."""
    return constant(fresh(*shape, positive=positive, seed=seed))


def number(value: float) -> Constant:
    """A scalar float32 constant."""
    return constant(np.array(value, np.float32))


def apply(name: str, *args: Expr, **attrs: Any) -> Call:
    """Call an operator by name, with attributes by name."""
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def function_of(*bodies: Expr) -> Function:
    """A function of the variables below its results, in order of first use."""
    params = tuple(node for node in post_order(*bodies) if isinstance(node, Var))
    return Function(params, bodies[0] if len(bodies) == 1 else make_tuple(bodies))


def verdicts_of(body: Expr, kind: str, table: SupportTable) -> dict[str, Support]:
    """What an accelerator says of every operator below ``body``, by the operator's name."""
    annotated = annotate(function_of(body), [(kind, table)])
    return {node.name: verdicts[0] for node, verdicts in annotated.verdicts.items()}


def whole_region(function: Function, kind: str, table: SupportTable) -> Region:
    """The whole function as a region of an accelerator, which must take every call."""
    annotated = annotate(function, [(kind, table)])
    refused = {
        node.name: verdicts[0].detail
        for node, verdicts in annotated.verdicts.items()
        if not verdicts[0]
    }
    assert refused == {}
    rows = {node: claimed.row for node, claimed in annotated.claimed.items()}
    return Region(f"{kind.replace('-', '_')}_0", kind, function, rows, ())


def expected(function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a function by the NumPy definitions of its operators."""
    values: dict[Expr, Any] = dict(zip(function.params, arrays, strict=True))
    for node in post_order(*function.outputs):
        match node:
            case Constant():
                values[node] = node.data
            case Call():
                values[node] = node.op.reference(node.attrs, *(values[arg] for arg in node.args))
            case TupleGetItem():
                values[node] = values[node.tuple][node.index]
            case _:
                assert node in values
    return [values[output] for output in function.outputs]
