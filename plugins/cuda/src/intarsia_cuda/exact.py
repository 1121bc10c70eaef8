# SPDX-License-Identifier: Apache-2.0
"""Products of quantized operators, which are rounded before anything is added to them.

``-fmad=true`` lets the compiler join a product and a sum, and skip the rounding between them. That
is more exact, and may still move a value across the middle between two integers: a quantized result
then differs by one from its definition, and from every other backend. Where a kernel stores 8 or 16
bit integers, products of floats are therefore calls that round (``__fmul_rn``), which the compiler
does not join. Sums that grow in a register, of a float product or convolution, are joined as ever.
"""

from __future__ import annotations

from dataclasses import replace

from intarsia_ir.tir.expr import Binary, BinaryOp, CallTarget, Load, PrimExpr
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Stmt, Store
from intarsia_ir.tir.walk import map_statement, rewrite

from .spelling import KIND, PRODUCT


def exact_products(function: PrimFunc) -> PrimFunc:
    """Return the kernel with products that are rounded, if it stores integers of 8 or 16 bits."""
    outputs = function.params[len(function.input_params) :]
    if not any(out.dtype.is_integer and out.dtype.bytes <= 2 for out in outputs):
        return function

    def on_expr(expr: PrimExpr) -> PrimExpr:
        return rewrite(expr, _rounded)

    def on_stmt(stmt: Stmt) -> Stmt:
        return stmt if _grows(stmt) else map_statement(stmt, on_stmt, on_expr)

    return replace(function, body=on_stmt(function.body))


def _rounded(node: PrimExpr) -> PrimExpr | None:
    if not isinstance(node, Binary) or node.op is not BinaryOp.MUL:
        return None
    if not node.dtype.is_float or node.dtype.bytes < 4:
        return None
    return CallTarget(KIND, PRODUCT, (node.a, node.b), node.dtype, node.lanes)


def _grows(stmt: Stmt) -> bool:
    """Whether a statement adds to what it overwrites."""
    if not isinstance(stmt, Store) or not isinstance(stmt.value, Binary):
        return False
    first = stmt.value.a
    return stmt.value.op is BinaryOp.ADD and isinstance(first, Load) and first.buffer is stmt.buffer
