# SPDX-License-Identifier: Apache-2.0
"""Operators that are several of ours: what lies between them is no float16."""

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
        if not dtype.is_float or dtype.bits >= 32:
            return convert(node)
        wide = copy(node)
        wide.args = (node.cast(x, DType.FLOAT32), *node.args[1:])
        return node.cast(convert(wide), dtype)

    return converted
