# SPDX-License-Identifier: Apache-2.0
"""Keep bytes between convolutions without sign, where nothing else sees them.

ONNX Runtime's quantizer writes what is behind a ``Relu`` or ``Clip`` as int8 with the zero point
-128. As uint8 with the zero point 0 it is the same numbers, 128 more, but for DSP instructions a
result of products then takes one instruction less (``USAT`` instead of ``QADD`` and ``SSAT``), and
padding of windows is zero::

    y = qnn.conv(..., y_zero=int8(-128)); qnn.conv(y, x_scale, int8(-128), ...)
 -> y = qnn.conv(..., y_zero=uint8(0));   qnn.conv(y, x_scale, uint8(0), ...)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, constant
from intarsia_ir.graph.walk import children, post_order, with_children
from intarsia_ir.ops.qnn_linear import Conv, Matmul
from intarsia_runtime.dtype import DType

_LOWEST = -128
_DATA, _DATA_ZERO, _RESULT_ZERO = 0, 2, 7
"""Operands of ``qnn.conv`` and ``qnn.matmul``."""


def unsigned_bytes(function: Function) -> Function:
    """Return a function with such results of convolutions and products as uint8."""
    nodes = list(post_order(function.body))
    visible = {function.body}
    for node in nodes:
        for place, operand in enumerate(children(node)):
            if place != _DATA or not _is_lowest(node, _DATA_ZERO):
                visible.add(operand)
    moved = {node for node in nodes if node not in visible and _is_lowest(node, _RESULT_ZERO)}
    if not moved:
        return function
    new: dict[Expr, Expr] = {}
    for node in nodes:
        operands = [new[operand] for operand in children(node)]
        if operands and children(node)[_DATA] in moved:
            operands[_DATA_ZERO] = _zero(operands[_DATA_ZERO])
        if node in moved:
            operands[_RESULT_ZERO] = _zero(operands[_RESULT_ZERO])
        new[node] = with_children(node, tuple(operands))
    return replace(function, body=new[function.body])


def _is_lowest(node: Expr, place: int) -> bool:
    """Whether an operand of a convolution or product is the zero point -128."""
    if not isinstance(node, Call) or node.op not in (Conv, Matmul):
        return False
    zero = node.args[place]
    return (
        isinstance(zero, Constant)
        and zero.type.dtype is DType.INT8
        and zero.type.rank == 0
        and int(zero.data) == _LOWEST
    )


def _zero(old: Expr) -> Constant:
    return constant(np.array(0, np.uint8), span=old.span)
