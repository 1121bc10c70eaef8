# SPDX-License-Identifier: Apache-2.0
"""Fuse quantize: put operators on integers where a model dequantizes, computes and quantizes.

What has no operator on integers stays as it is, in float32 between dequantization and quantization,
and is named in the remarks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, Function, call, constant, tensor_type
from ..graph.module import IRModule
from ..graph.walk import children, count_uses, post_order, with_children
from ..ops.binary import Multiply
from ..ops.integer_forms import (
    INTEGER_FORMS,
    Parameters,
    as_stored,
    clipped,
    limits_of,
    move_dequantize,
    passes,
)
from ..ops.nn import Matmul
from ..ops.qnn_linear import MatmulInteger
from ..ops.slicing_rules import is_constant_pad, pad_integers
from ..ops.stored import result_parameters, stored
from ..ops.unary import Cast
from .base import Pass, Remarks, map_functions
from .integer_tables import as_integers

_QUANTIZED = "qnn."
FLOAT = DType.FLOAT32


def fuse_quantize(module: IRModule, remarks: Remarks) -> IRModule:
    """Rewrite clusters of dequantize, operator, quantize; each node is looked at once."""

    def change(function: Function) -> Function:
        fused = _fuse(function)
        _report(fused, remarks)
        return fused

    return map_functions(module, change)


def _fuse(function: Function) -> Function:
    old_uses = count_uses((function.body,))
    uses: dict[Expr, int] = {}
    renamed: dict[Expr, Expr] = {}
    for node in post_order(function.body):
        rebuilt = with_children(node, tuple(renamed[child] for child in children(node)))
        result = move_dequantize(rebuilt)
        if result is None and isinstance(rebuilt, Call) and rebuilt.name == "qnn.quantize":
            result = _quantized(rebuilt, uses)
        renamed[node] = rebuilt if result is None else result
        uses[renamed[node]] = uses.get(renamed[node], 0) + old_uses[node]
    body = renamed[function.body]
    return _sums(function if body is function.body else replace(function, body=body))


def _sums(function: Function) -> Function:
    """Multiply integers where the result of a product is needed as real numbers.

    matmul(dequantize(x), dequantize(w)) --> cast(sums of integers) * (x scale * w scale)

    The last layer of a network has no quantization behind it. Its weights stay bytes, and sums of
    integers are exact.
    """
    renamed: dict[Expr, Expr] = {}
    for node in post_order(function.body):
        rebuilt = with_children(node, tuple(renamed[child] for child in children(node)))
        product = rebuilt if isinstance(rebuilt, Call) and rebuilt.op is Matmul else None
        renamed[node] = rebuilt if product is None else (_sum_of_integers(product) or rebuilt)
    body = renamed[function.body]
    return function if body is function.body else replace(function, body=body)


def _sum_of_integers(node: Call) -> Expr | None:
    """Return a product as scaled sums of integers; ``None`` if it is none of bytes."""
    a, b = (stored(arg) for arg in node.args)
    if a is None or b is None or not (a.is_byte and b.is_byte and isinstance(b.value, Constant)):
        return None
    attrs, is_float = node.attrs, tensor_type(node).dtype is FLOAT
    if not isinstance(attrs, Matmul.Attrs) or b.value.data.ndim != 2 or not is_float:
        return None
    left, right = a.triple, b.vectors(0 if attrs.transpose_b else 1)
    if left is None or right is None or np.any(right[1].data):
        return None
    value, scale, zero = left
    total = call(MatmulInteger, value, zero, b.value, right[1], attrs=attrs, span=node.span)
    real = call(Cast, total, attrs=Cast.Attrs(dtype=FLOAT), span=node.span)
    factor = constant(np.asarray(scale.data * right[0].data, np.float32))
    return call(Multiply, real, factor, span=node.span)


def _quantized(node: Call, uses: dict[Expr, int]) -> Expr | None:
    """quantize(moves(limits(op(dequantize(x))))) --> moves(limits(op on integers(x)))

    Quantization never swaps two numbers, so it can be done before picking and limiting them.
    """
    result = result_parameters(node)
    if result is None:
        return None
    around: list[Call] = []
    inner = node.args[0]
    while isinstance(inner, Call) and stored(inner) is None:
        found = _found(inner, result, uses)
        if found is not None:
            return _around(found, around, result)
        moved = passes(inner) or is_constant_pad(inner)
        if uses.get(inner, 0) > 1 or not (moved or limits_of(inner) is not None):
            return None
        around.append(inner)
        inner = inner.args[0]
    found = as_integers(inner, result)
    return None if found is None else _around(found, around, result)


def _found(inner: Call, result: Parameters, uses: dict[Expr, int]) -> Expr | None:
    """Return ``inner`` on integers, unless it is needed as real numbers too."""
    if uses.get(inner, 0) > 1 or limits_of(inner) is not None:
        return None
    products = [arg for arg in inner.args if isinstance(arg, Call) and arg.name == "matmul"]
    if any(uses.get(arg, 0) > 1 for arg in products):
        return None
    return as_integers(inner, result)


def _around(found: Expr, around: list[Call], result: Parameters) -> Expr:
    """Apply what stood between an operator and the quantization of its result to integers."""
    scale, zero = result
    for outer in reversed(around):
        limits = limits_of(outer)
        if is_constant_pad(outer):
            found = pad_integers(found, outer, scale.data, zero.data)
            continue
        if limits is None:
            found = call(outer.op, found, *outer.args[1:], attrs=outer.attrs, span=outer.span)
            continue
        low, high = (as_stored(limit, scale.data, zero.data) for limit in limits)
        found = clipped(found, low, high, outer)
    return found


def is_in_float(node: Call) -> bool:
    """Whether an operator is computed in float32 although its operands are quantized."""
    if node.name.startswith(_QUANTIZED):
        return False
    only = len(node.args) == 1
    return any(
        isinstance(arg, Call)
        and arg.name == "qnn.dequantize"
        and (only or not isinstance(arg.args[0], Constant))
        for arg in node.args
    )


def _report(function: Function, remarks: Remarks) -> None:
    """Name the operators that are computed in float32 although their operands are quantized."""
    for node in post_order(function.body):
        if isinstance(node, Call) and is_in_float(node):
            reason = INTEGER_FORMS.reason(node.op)
            why = f" ({reason})" if reason else ""
            message = f"'{node.name}' has no form on these integers{why}: computed in float32"
            remarks.add("fuse-quantize", message, node.span)


FUSE_QUANTIZE = Pass("fuse-quantize", fuse_quantize)
