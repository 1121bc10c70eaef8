# SPDX-License-Identifier: Apache-2.0
"""Quantised expressions, regions of them, and what the operators' own definitions give."""

from __future__ import annotations

import numpy as np

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr, Function, Var, call, constant
from intarsia.ir.types import TensorType
from intarsia.ir.walk import post_order
from intarsia.ops import OPERATORS
from intarsia.ops.evaluate import evaluate
from intarsia.partition.annotate import annotate
from intarsia.partition.region import Region
from intarsia.partition.support import Support
from intarsia_ethos_n.support import support_table
from intarsia_ethos_n.target import EthosNOptions

KEPT = ((1, 1), (1, 1))
WINDOW = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def var(name: str, *shape: int, dtype: str = "int8") -> Var:
    """Return an 8-bit parameter."""
    return Var(name, TensorType(shape, DType(dtype)))


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


def conv(x: Expr, weight: Constant, *, dtype: str = "int8", **attrs: object) -> Call:
    """Return a convolution with strides, padding and dilation of 1, 0 and 1 where not given.

    ``w_scale``, ``to`` (the result's scale), ``zeros`` and ``bias`` are for its operands.
    """
    w_scale, to = attrs.pop("w_scale", scale(0.01)), attrs.pop("to", 0.9)
    zeros, bias = attrs.pop("zeros", (3, 7)), attrs.pop("bias", True)
    w_zero = zero(attrs.pop("w_zero", 0), weight.data.dtype.name)
    biases = constant(np.arange(weight.data.shape[0], dtype=np.int32) * 100 - 300)
    result = (scale(to), zero(zeros[1], dtype))
    operands = (x, scale(0.05), zero(zeros[0], dtype), weight, w_scale, w_zero, *result)
    return apply("qnn.conv", *operands, *([biases] if bias else []), **(WINDOW | attrs))


def conv_transpose(x: Expr, weight: Constant, **attrs: object) -> Call:
    """Return a transposed convolution with strides of 2 where not given; ``to`` is its scale."""
    w_scale, to = attrs.pop("w_scale", scale(0.01)), attrs.pop("to", 0.9)
    operands = (x, scale(0.05), zero(3), weight, w_scale, zero(0), scale(to), zero(7))
    biases = constant(np.arange(weight.data.shape[1], dtype=np.int32) * 100 - 300)
    return apply("qnn.conv_transpose", *operands, biases, **(WINDOW | {"strides": (2, 2)} | attrs))


def product(x: Expr, weight: Constant, **attrs: object) -> Call:
    """Return a product of rows with constant weights."""
    count = weight.data.shape[0 if attrs.get("transpose_b") else 1]
    w_scale = attrs.pop("w_scale", scale(0.02))
    operands = (x, scale(0.3), zero(1), weight, w_scale, zero(0), scale(0.7), zero(2))
    return apply("qnn.matmul", *operands, constant(np.arange(count, dtype=np.int32)), **attrs)


def binary(name: str, a: Expr, b: Expr) -> Call:
    """Return a sum or product of two tensors."""
    pairs = (a, scale(0.1), zero(4), b, scale(0.03), zero(-7))
    return apply(name, *pairs, scale(0.12), zero(9))


def averaged(x: Expr, kernel: int, *, to: float = 0.1, **attrs: object) -> Call:
    """Return a mean of windows."""
    parameters = (scale(0.1), zero(4), scale(to), zero(4))
    window = WINDOW | {"kernel": (kernel, kernel)} | attrs
    return apply("qnn.avg_pool", x, *parameters, **window)


def mean(x: Expr, *axes: int, to: float = 0.1, keepdims: bool = True) -> Call:
    """Return a mean over axes."""
    parameters = (scale(0.1), zero(4), scale(to), zero(4))
    return apply("qnn.mean", x, *parameters, axes=axes, keepdims=keepdims)


def pooled(x: Expr, kernel: int, stride: int, **attrs: object) -> Call:
    """Return the largest of windows."""
    window = WINDOW | {"kernel": (kernel, kernel), "strides": (stride, stride)} | attrs
    return apply("nn.max_pool", x, **window)


def function_of(body: Expr) -> Function:
    """Return a function with the variables below ``body`` as parameters, in order of first use."""
    return Function(tuple(node for node in post_order(body) if isinstance(node, Var)), body)


def verdict(body: Call, **options: object) -> Support:
    """Return what the plugin says of the last operator."""
    table = support_table(EthosNOptions(**options))
    return annotate(function_of(body), [("ethos-n", table)]).verdicts[body][0]


def region_of(body: Expr) -> Region:
    """Return the whole function as a region; every call must be taken."""
    function = function_of(body)
    annotated = annotate(function, [("ethos-n", support_table(EthosNOptions()))])
    refused = {
        node.name: said[0].detail for node, said in annotated.verdicts.items() if not said[0]
    }
    assert refused == {}
    rows = {node: placed.row for node, placed in annotated.placed.items()}
    return Region("ethos_n_0", "ethos-n", function, rows, ())


def inputs_for(function: Function) -> list[np.ndarray]:
    """Return random inputs."""
    return [
        numbers(*param.type.static_shape, seed=number, dtype=str(param.type.dtype))
        for number, param in enumerate(function.params)
        if isinstance(param.type, TensorType)
    ]


def expected(function: Function, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the operators' NumPy definitions give."""
    named = {param.name: array for param, array in zip(function.params, arrays, strict=True)}
    return list(evaluate(function, named))
