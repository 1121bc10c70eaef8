# SPDX-License-Identifier: Apache-2.0
"""Rules about reductions: chains become one, pooling over everything becomes a mean or maximum."""

from __future__ import annotations

from ...ir.expr import Call, Expr, call
from ...ir.types import TensorType
from ...ir.walk import RewriteRule
from ...ops import OPERATORS
from ...ops.pooling import PoolAttrs
from ...ops.reduce import ReduceOp

CHAINED = ("sum", "mean", "prod", "max", "min", "all", "any")


def drop_empty_reduction(expr: Expr) -> Expr | None:
    """mean(x, axes=()) --> x"""
    match expr:
        case Call(args=(x,), attrs=ReduceOp.Attrs(axes=())) if x.type == expr.type:
            return x
        case _:
            return None


def merge_reductions(expr: Expr) -> Expr | None:
    """mean(mean(x, axes=a, keepdims=True), axes=b, keepdims=True) --> mean(x, axes=a + b)"""
    match expr:
        case Call(
            outer,
            (Call(inner, (x,), ReduceOp.Attrs(axes=first, keepdims=True)),),
            ReduceOp.Attrs(axes=second, keepdims=True),
        ) if outer == inner and not set(first) & set(second):
            attrs = ReduceOp.Attrs(axes=tuple(sorted(first + second)), keepdims=True)
            return call(expr.op, x, attrs=attrs, span=expr.span)
        case _:
            return None


def pool_to_reduction(expr: Expr) -> Expr | None:
    """nn.avg_pool(x, kernel=whole image) --> mean(x, spatial axes, keepdims=True); max alike"""
    match expr:
        case Call(name, (x,), PoolAttrs() as attrs):
            type_ = x.type
            if not isinstance(type_, TensorType) or type_.shape[2:] != attrs.kernel:
                return None
            if any(map(any, attrs.padding)) or any(step != 1 for step in attrs.dilation):
                return None
            axes = tuple(range(2, type_.rank))
            reduction = OPERATORS["mean" if name == "nn.avg_pool" else "max"]
            made = ReduceOp.Attrs(axes=axes, keepdims=True)
            result = call(reduction, x, attrs=made, span=expr.span)
            return result if result.type == expr.type else None
        case _:
            return None


REDUCTIONS: tuple[tuple[str, RewriteRule], ...] = (
    *((name, drop_empty_reduction) for name in CHAINED),
    *((name, merge_reductions) for name in CHAINED),
    ("nn.avg_pool", pool_to_reduction),
    ("nn.max_pool", pool_to_reduction),
)
