# SPDX-License-Identifier: Apache-2.0
"""Fractions and roots of open sizes, e.g. ``1 / sqrt(width)``, as tensors of one element."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.op import Op
from intarsia_ir.ops import binary, unary
from intarsia_ir.ops.generate import Sizes
from intarsia_ir.tir.tensor import extents
from intarsia_onnx.builder import Builder
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim

from .sizes import Symbols

if TYPE_CHECKING:
    from ..types import SymExpression

_BINARY: Mapping[str, type[Op]] = MappingProxyType(
    {
        "Add": binary.Add,
        "FloatPow": binary.Power,
        "FloatTrueDiv": binary.Divide,
        "IntTrueDiv": binary.Divide,
        "Mul": binary.Multiply,
        "Pow": binary.Power,
    }
)
_UNARY: Mapping[str, type[Op]] = MappingProxyType(
    {
        "OpaqueUnaryFn_exp": unary.Exp,
        "OpaqueUnaryFn_log": unary.Log,
        "OpaqueUnaryFn_sqrt": unary.Sqrt,
    }
)


def fraction(node: Builder, expression: SymExpression, symbols: Symbols) -> Expr:
    """Return the value of an expression of PyTorch's tracing as a tensor of one float64.

    Raises:
        UnsupportedError: It has an operation without counterpart.
    """
    name = type(expression).__name__
    if expression.is_number:
        return node.scalar(float(cast("float", expression)), DType.FLOAT64)
    if name == "ToFloat" or expression.is_Symbol:
        return _size(node, expression.args[0] if name == "ToFloat" else expression, symbols)
    operands = [fraction(node, operand, symbols) for operand in expression.args]
    if name in _UNARY:
        return node.call(_UNARY[name], *operands)
    if name not in _BINARY:
        raise UnsupportedError(f"{expression} is computed of open sizes by {name}")
    return reduce(lambda a, b: node.call(_BINARY[name], a, b), operands)


def _size(node: Builder, expression: SymExpression, symbols: Symbols) -> Expr:
    size = symbols.size_of(expression)
    if not isinstance(size, Dim):
        return node.scalar(size, DType.FLOAT64)
    value = node.call(Sizes, attrs=Sizes.Attrs(sizes=extents([size])))
    return node.cast(node.reshape(value, ()), DType.FLOAT64)
