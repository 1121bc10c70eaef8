# SPDX-License-Identifier: Apache-2.0
"""Operator calls by name, whole functions as regions, and their networks on the real library."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.artifact.plan import TensorSpec
from intarsia.dtype import DType
from intarsia.errors import ToolchainError
from intarsia.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    TupleGetItem,
    Var,
    call,
    constant,
    tensor_type,
)
from intarsia.ir.types import TensorType
from intarsia.ir.walk import post_order
from intarsia.ops import OPERATORS
from intarsia.ops.arrays import numpy_dtype
from intarsia.partition.annotate import annotate
from intarsia.partition.region import Region
from intarsia.partition.support import Support
from intarsia_tensorrt.codegen import write_network
from intarsia_tensorrt.sdk import Library, find_library
from intarsia_tensorrt.support import support_table


def library() -> Library:
    """Return the edition that builds without a GPU, or skip the test."""
    try:
        return find_library("tensorrt-rtx")
    except ToolchainError as error:
        pytest.skip(str(error))


def var(name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Var:
    """Return a parameter."""
    return Var(name, TensorType(shape, dtype))


def fresh(*shape: int, seed: int = 0) -> np.ndarray:
    """Return random float32 numbers that depend on shape and seed only."""
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape).astype(np.float32)


def weight(*shape: int, seed: int = 1) -> Constant:
    """Return a random constant."""
    return constant(fresh(*shape, seed=seed))


def apply(name: str, *args: Expr, **attrs: object) -> Call:
    """Call an operator by name."""
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def function_of(body: Expr) -> Function:
    """Return a function with the variables below ``body`` as parameters, in order of first use."""
    return Function(tuple(node for node in post_order(body) if isinstance(node, Var)), body)


def verdicts(body: Expr) -> dict[str, Support]:
    """Return what the plugin says of every operator below ``body``."""
    annotated = annotate(function_of(body), [("tensorrt", support_table())])
    return {node.name: said[0] for node, said in annotated.verdicts.items()}


def region_of(function: Function) -> Region:
    """Return the whole function as a region; every call must be taken."""
    annotated = annotate(function, [("tensorrt", support_table())])
    refused = {
        node.name: said[0].detail for node, said in annotated.verdicts.items() if not said[0]
    }
    assert refused == {}
    rows = {node: placed.row for node, placed in annotated.placed.items()}
    return Region("tensorrt_0", "tensorrt", function, rows, ())


def expected(function: Function, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the operators' NumPy definitions give."""
    values: dict[Expr, np.ndarray] = dict(zip(function.params, arrays, strict=True))
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


def inputs_of(function: Function, *, seed: int = 0) -> list[np.ndarray]:
    """Return random arrays for the parameters."""
    found: list[np.ndarray] = []
    for number, param in enumerate(function.params):
        type_ = tensor_type(param)
        data = fresh(*type_.static_shape, seed=seed + number) * 2
        found.append(data.astype(numpy_dtype(type_.dtype)))
    return found


def spec(name: str, value: Expr) -> TensorSpec:
    """Return a tensor as the runtime describes it."""
    type_ = tensor_type(value)
    return TensorSpec(name, type_.static_shape, type_.dtype)


def network_of(body: Expr, *, half: bool = False):
    """Return the network of a whole function, and the function."""
    function = function_of(body)
    return write_network(region_of(function), library(), half=half), function
