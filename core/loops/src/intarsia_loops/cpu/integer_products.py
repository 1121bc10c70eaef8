# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions and products in float32, for machines without a dot product of bytes.

Products of bytes and their sums are integers. While no sum reaches 2^24 in magnitude, float32
represents each of them exactly, in any order of summation. The constant weights give the bound: 255
times the sum of their magnitudes. If it exceeds 2^24, the input channels are split into parts that
stay below it, and the parts are added as integers. The float32 schedules then give exact integers,
at four bytes an operand instead of one; default loops take 20 to 100 times as long. Winograd's
method must not be used here, because its sums are not integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops import nn, qnn_linear
from intarsia_ir.ops.binary import Add, Subtract
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.dtype import DType

from .integer_sums import multiplies_bytes
from .relayout import sliced
from .tiling import CpuTiling

_EXACT = 1 << 24
"""Whole numbers below it are float32."""

_FARTHEST = 255
"""Most that a byte and its zero point are apart."""

_MOST_PARTS = 8
"""Parts of the input channels at most; more are left to default loops."""

_LEAST_LANES = 8
"""Lanes of float32 from which on a processor gains: AVX2."""


def integer_products_in_float32(function: Function, tiling: CpuTiling) -> Function:
    """Return an equivalent function; the same one if nothing gains.

    Args:
        function: What the backend compiles.
        tiling: Of the machine; where it multiplies bytes, only operators for which it has no
            loops are changed.
    """
    if tiling.lanes < _LEAST_LANES or tiling.bf16x2 is not None:  # which rounds operands
        return function

    made = {qnn_linear.ConvInteger: _convolution, qnn_linear.MatmulInteger: _product}

    def changed(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.op not in made:
            return None
        if tiling.int8x4 is not None and multiplies_bytes(node):
            return None
        return made[node.op](node)

    return rewrite_function(function, changed)


def _convolution(node: Call) -> Expr | None:
    attrs, (data, zero, weight, w_zero) = node.attrs, node.args
    if not isinstance(attrs, nn.Conv.Attrs):
        return None
    whole = _centred(weight, w_zero, 0)
    if whole is None or whole.size == 0:
        return None
    parts = _parts(np.moveaxis(whole, 1, 0))
    if not parts or (len(parts) > 1 and attrs.groups > 1):
        return None
    real = _shifted(data, zero)
    if len(parts) == 1:
        return _added((call(nn.Conv, real, _weights(whole), attrs=attrs, span=node.span),), node)
    sums: list[Expr] = [
        call(
            nn.Conv, sliced(real, 1, ends), _weights(whole[:, slice(*ends)]), attrs=attrs,
            span=node.span,
        )
        for ends in parts
    ]  # fmt: skip
    return _added(sums, node)


def _product(node: Call) -> Expr | None:
    attrs, (data, zero, weight, w_zero) = node.attrs, node.args
    if not isinstance(attrs, nn.Matmul.Attrs) or tensor_type(weight).rank < 2:
        return None
    depth = tensor_type(weight).rank - (1 if attrs.transpose_b else 2)
    columns = tensor_type(weight).rank - (2 if attrs.transpose_b else 1)
    whole = _centred(weight, w_zero, columns)
    if whole is None or whole.size == 0:
        return None
    parts = _parts(np.moveaxis(whole, (depth, columns), (0, 1)))
    if not parts:
        return None
    real = _shifted(data, zero)
    axis = tensor_type(data).rank - (2 if attrs.transpose_a else 1)
    sums: list[Expr] = []
    for ends in parts:
        part = _weights(np.take(whole, range(*ends), axis=depth))
        sums.append(call(nn.Matmul, sliced(real, axis, ends), part, attrs=attrs, span=node.span))
    return _added(sums, node)


def _centred(weight: Expr, zero: Expr, axis: int) -> np.ndarray | None:
    """Return constant weights less their zero point, which is one number or one along an axis."""
    if not isinstance(weight, Constant) or not isinstance(zero, Constant):
        return None
    point = zero.data.astype(np.int64)
    if point.ndim:
        shape = [1] * weight.data.ndim
        shape[axis] = point.size
        point = point.reshape(shape)
    return weight.data.astype(np.int64) - point


def _parts(whole: np.ndarray) -> list[tuple[int, int]]:
    """Return the fewest equal parts of the terms of sums, in each of which all sums are exact.

    Args:
        whole: Weights, ``[inputs, outputs, ...]``. Further axes are taps, which are summed over as
            well, or of a batch, which makes the bound larger than it must be.

    Returns:
        Where each part begins and ends; nothing if there would be too many.
    """
    depth = len(whole)
    terms = np.abs(whole).reshape(depth, whole.shape[1], -1).sum(axis=2)
    for count in range(1, min(_MOST_PARTS, depth) + 1):
        borders = [depth * number // count for number in range(count + 1)]
        sums = np.add.reduceat(terms, borders[:-1], axis=0)
        if int(sums.max()) * _FARTHEST < _EXACT:
            return list(pairwise(borders))
    return []


def _shifted(data: Expr, zero: Expr) -> Expr:
    """Return data less their zero point as floats."""
    attrs = Cast.Attrs(dtype=DType.FLOAT32)
    real, point = (call(Cast, x, attrs=attrs) for x in (data, zero))
    return call(Subtract, real, point)


def _weights(whole: np.ndarray) -> Constant:
    return constant(np.ascontiguousarray(whole.astype(np.float32)))


def _added(sums: Sequence[Expr], node: Call) -> Expr:
    """Return the sum of whole floats as integers."""
    kind = node.type
    assert isinstance(kind, TensorType)  # of one result
    attrs = Cast.Attrs(dtype=kind.dtype)
    total, *others = [call(Cast, part, attrs=attrs, span=node.span) for part in sums]
    for other in others:
        total = call(Add, total, other, span=node.span)
    return total
