# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of float16 and bfloat16: computed in float32 and rounded once."""

from __future__ import annotations

import numpy as np

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, constant, tensor_type
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.nn import Conv, ConvTranspose, Matmul
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.dtype import DType

_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_PRODUCTS = (Conv, ConvTranspose, Matmul)


def widen_half_precision(function: Function) -> Function:
    """Return an equivalent function whose convolutions and products of matrices are float32."""
    return rewrite_function(function, _widened)


def _widened(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or node.op not in _PRODUCTS:
        return None
    dtype = tensor_type(node).dtype
    if dtype not in _HALVES:
        return None
    wide = [_in_float32(arg) for arg in node.args]
    result = call(node.op, *wide, attrs=node.attrs, span=node.span)
    return call(Cast, result, attrs=Cast.Attrs(dtype=dtype), span=node.span)


def _in_float32(value: Expr) -> Expr:
    if isinstance(value, Constant):
        return constant(value.data.astype(np.float32), name=value.name, span=value.span)
    return call(Cast, value, attrs=Cast.Attrs(dtype=DType.FLOAT32))
