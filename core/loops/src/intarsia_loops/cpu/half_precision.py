# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of float16 and bfloat16: computed in float32 and rounded once.

Those of float16 with constant weights add up in float16 where users allow it and instructions do.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.nn import Conv, ConvTranspose, Matmul
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.dtype import DType

from .tiling import CpuTiling

_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_PRODUCTS = (Conv, ConvTranspose, Matmul)


def widen_half_precision(function: Function, tiling: CpuTiling) -> Function:
    """Return an equivalent function whose convolutions and products of matrices are float32.

    Args:
        function: Of a model.
        tiling: Register tile of the machine, which may have one for float16.
    """
    return rewrite_function(function, partial(_widened, tiling))


def tile_of(node: Call, tiling: CpuTiling) -> CpuTiling | None:
    """Return the tile of a convolution or a product: of the machine, or of float16 if it has one.

    Args:
        node: The call.
        tiling: Register tile of the machine for float32.

    Returns:
        ``None`` where elements are neither float32 nor float16 that adds up in float16.
    """
    if tensor_type(node).dtype is DType.FLOAT32:
        return tiling
    return tiling.float16 if _runs_in_float16(node) else None


def _runs_in_float16(node: Call) -> bool:
    """Whether a call is a product of float16 with constant weights for which there are loops."""
    kind = node.type
    if not isinstance(kind, TensorType) or kind.dtype is not DType.FLOAT16:
        return False
    if node.op not in (Conv, Matmul) or not isinstance(node.args[1], Constant):
        return False
    weight = node.args[1].data
    match node.attrs:
        case Conv.Attrs():
            return kind.rank == 4 and weight.size > 0 and weight.shape[1] > 1
        case Matmul.Attrs(transpose_a=transpose_a):
            return weight.ndim == 2 and weight.size > 0 and not transpose_a
        case _:
            return False


def _widened(tiling: CpuTiling, node: Expr) -> Expr | None:
    if not isinstance(node, Call) or node.op not in _PRODUCTS:
        return None
    if tile_of(node, tiling) is not None:
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
