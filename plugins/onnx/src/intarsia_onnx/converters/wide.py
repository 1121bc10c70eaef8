# SPDX-License-Identifier: Apache-2.0
"""Operators that are several of ours, or loops: what lies between their parts is no float16."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps

from intarsia_ir.graph.expr import Expr
from intarsia_runtime.dtype import DType

from ..builder import dtype_of
from ..context import NodeContext


def in_float32(convert: Callable[[NodeContext], Expr]) -> Callable[[NodeContext], Expr]:
    """Have a converter compute in float32 if its first operand has fewer bits, as ONNX Runtime.

    In float16 the sum of squares behind a norm of 300 is infinite, though the norm itself is not.
    """

    @wraps(convert)
    def converted(node: NodeContext) -> Expr:
        x = node.input(0)
        dtype = dtype_of(x)
        if not _is_narrow(dtype):
            return convert(node)
        wide = copy(node)
        wide.args = (node.cast(x, DType.FLOAT32), *node.args[1:])
        return node.cast(convert(wide), dtype)

    return converted


def with_steps_in_float32(
    convert: Callable[[NodeContext], tuple[Expr, ...]],
) -> Callable[[NodeContext], tuple[Expr, ...]]:
    """Have the converter of a layer compute its steps in float32 if they have fewer bits.

    ONNX Runtime has no other steps on processors, and ours are the loops of float32 then. Every
    operand of the first one's type is widened; each result is rounded once.
    """

    @wraps(convert)
    def converted(node: NodeContext) -> tuple[Expr, ...]:
        dtype = dtype_of(node.input(0))
        if not _is_narrow(dtype):
            return convert(node)
        wide = copy(node)
        wide.args = [
            node.folded(node.cast(x, DType.FLOAT32))
            if x is not None and dtype_of(x) is dtype
            else x
            for x in node.args
        ]
        return tuple(node.cast(result, dtype) for result in convert(wide))

    return converted


def _is_narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits < 32
