# SPDX-License-Identifier: Apache-2.0
"""Quantised expressions, regions of them, and what the operators' own definitions give."""

from __future__ import annotations

import numpy as np

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr, Function, Var, call, constant
from intarsia.ir.types import TensorType
from intarsia.ir.walk import post_order
from intarsia.ops import OPERATORS
from intarsia.partition.annotate import annotate
from intarsia.partition.region import Region
from intarsia.partition.support import Support
from intarsia_ethos_u.codegen import emit
from intarsia_ethos_u.support import support_table
from intarsia_ethos_u.tosa.execute import execute


def var(name: str, *shape: int, dtype: DType = DType.INT8) -> Var:
    """Return an 8-bit parameter."""
    return Var(name, TensorType(shape, dtype))


def scale(*values: float) -> Constant:
    """Return one scale, or one for each channel."""
    return constant(np.asarray(values[0] if len(values) == 1 else values, np.float32))


def zero(value: int, dtype: str = "int8") -> Constant:
    """Return a zero point."""
    return constant(np.asarray(value, dtype))


def numbers(*shape: int, seed: int = 0, dtype: str = "int8") -> np.ndarray:
    """Return random elements over the whole range of a type."""
    limits = np.iinfo(dtype)
    generator = np.random.default_rng([seed, *shape])
    return generator.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def weights(*shape: int, seed: int = 1, dtype: str = "int8") -> Constant:
    """Return random constant weights."""
    return constant(numbers(*shape, seed=seed, dtype=dtype))


def apply(name: str, *args: Expr, **attrs: object) -> Call:
    """Call an operator by name."""
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def conv(
    x: Expr,
    weight: Constant,
    *,
    zeros: tuple[int, int] = (3, -5),
    scales: tuple[float, float] = (0.05, 0.9),
    w_scale: Constant | None = None,
    bias: bool = True,
    w_zero: int = 0,
    dtype: str = "int8",
    **attrs: object,
) -> Call:
    """Return a convolution with strides, padding and dilation of 1, 0 and 1 where not given."""
    window = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    channels = weight.data.shape[0]
    biases = np.arange(channels, dtype=np.int32) * 100 - 300
    operands = [
        x,
        scale(scales[0]),
        zero(zeros[0], dtype),
        weight,
        scale(0.01) if w_scale is None else w_scale,
        zero(w_zero, weight.data.dtype.name),
        scale(scales[1]),
        zero(zeros[1], dtype),
        *([constant(biases)] if bias else []),
    ]
    return apply("qnn.conv", *operands, **(window | attrs))


def function_of(body: Expr) -> Function:
    """Return a function with the variables below ``body`` as parameters, in order of first use."""
    return Function(tuple(node for node in post_order(body) if isinstance(node, Var)), body)


def verdict(body: Call) -> Support:
    """Return what the plugin says of the last operator."""
    return annotate(function_of(body), [("ethos-u", support_table())]).verdicts[body][0]


def region_of(body: Expr) -> Region:
    """Return the whole function as a region; every call must be taken."""
    function = function_of(body)
    annotated = annotate(function, [("ethos-u", support_table())])
    refused = {
        node.name: said[0].detail for node, said in annotated.verdicts.items() if not said[0]
    }
    assert refused == {}
    rows = {node: placed.row for node, placed in annotated.placed.items()}
    return Region("ethos_u_0", "ethos-u", function, rows, ())


def expected(function: Function, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the operators' NumPy definitions give."""
    values: dict[Expr, np.ndarray] = dict(zip(function.params, arrays, strict=True))
    for node in post_order(*function.outputs):
        if isinstance(node, Constant):
            values[node] = node.data
        elif isinstance(node, Call):
            values[node] = node.op.reference(node.attrs, *(values[arg] for arg in node.args))
    return [values[output] for output in function.outputs]


def inputs_for(function: Function) -> list[np.ndarray]:
    """Return random inputs."""
    return [
        numbers(*param.type.static_shape, seed=number, dtype=str(param.type.dtype))
        for number, param in enumerate(function.params)
        if isinstance(param.type, TensorType)
    ]


def differences(body: Expr) -> np.ndarray:
    """Return how far the program's results are from the operators' definitions, in quanta."""
    region = region_of(body)
    program, constants = emit(region)
    arrays = inputs_for(region.function)
    found = execute(program, constants, arrays)
    right = expected(region.function, arrays)
    for mine, theirs in zip(found, right, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
    pairs = zip(found, right, strict=True)
    return np.concatenate([(a.astype(int) - b.astype(int)).reshape(-1) for a, b in pairs])
