# SPDX-License-Identifier: Apache-2.0
"""Flush subnormals: weights that training let decay to less than 2**-126 become 0.

Weight decay drives the weights of dead channels towards 0, and past the normal numbers of float32:
published networks have up to a quarter of a layer's weights there. Each multiply-add of a vector
with a subnormal number takes some 150 cycles of microcode on x86-64, for products that are nothing
beside the rounding of their sum. OpenVINO's CPU plugin flushes constants in the same way.
"""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, constant
from ..graph.module import IRModule
from ..graph.walk import with_children
from ..ops.arrays import Array
from ..ops.nn import Conv, ConvTranspose, Matmul
from ..ops.recurrent import Gru, Lstm
from ..ops.recurrent_plain import Rnn
from .base import Pass, Remarks, rewrite

_WEIGHTED = (Conv, ConvTranspose, Matmul, Lstm, Gru, Rnn)
_TINY = np.finfo(np.float32).tiny
_BLOCK = 1 << 15
"""Elements that are looked at together: their magnitudes stay in the cache."""


def flush_subnormals(module: IRModule, _remarks: Remarks) -> IRModule:
    """Replace subnormal weights of convolutions, products and recurrent layers by 0."""
    flushed: dict[Constant, Expr] = {}

    def weight(expr: Expr) -> Expr:
        if not isinstance(expr, Constant) or expr.type.dtype is not DType.FLOAT32:
            return expr
        if expr not in flushed:
            flushed[expr] = _flushed(expr)
        return flushed[expr]

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or expr.op not in _WEIGHTED:
            return None
        args = tuple(map(weight, expr.args))
        same = all(new is old for new, old in zip(args, expr.args, strict=True))
        return None if same else with_children(expr, args)

    return rewrite(module, rule)


def _flushed(weight: Constant) -> Constant:
    data = weight.data
    if not _has_subnormals(data):
        return weight
    normal = np.where(np.abs(data) < _TINY, np.float32(0), data)
    return constant(normal, name=weight.name)


def _has_subnormals(data: Array) -> bool:
    """Whether an array holds a number that is not 0 and below all normal ones."""
    flat = data.reshape(-1)
    magnitudes = np.empty(min(_BLOCK, flat.size), np.float32)
    for first in range(0, flat.size, _BLOCK):
        block = flat[first : first + _BLOCK]
        size = np.abs(block, out=magnitudes[: block.size])
        low = size < _TINY
        if low.any() and bool(size[low].any()):
            return True
    return False


FLUSH_SUBNORMALS = Pass("flush-subnormals", flush_subnormals)
