# SPDX-License-Identifier: Apache-2.0
"""What is known of reductions: derivatives, batch axes, simplifications."""

from __future__ import annotations

from math import prod

from ..graph.expr import Call, Expr, call
from . import cumulative, reduce
from .derivative import DERIVATIVES, derivative
from .integer_forms import INTEGER_FORMS, give_passing
from .reduce import ReduceOp
from .rewriting import simplification
from .terms import Contributions, DerivativeStep, Term

give_passing(reduce.Max)


def _kept(x: Term, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the operand with 1 along the axes."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes))


@derivative(reduce.Sum)
def _sum_derivative(step: DerivativeStep, attrs: reduce.Sum.Attrs) -> Contributions:
    """The same for every element."""
    (x,) = step.args
    return [step.adjoint.reshape(_kept(x, attrs.axes)).broadcast(x.sizes)]


@derivative(reduce.Mean)
def _mean_derivative(step: DerivativeStep, attrs: reduce.Mean.Attrs) -> Contributions:
    """An equal share for every element."""
    (x,) = step.args
    count = prod(x.sizes[axis] for axis in attrs.axes)
    share = step.adjoint * (1 / max(count, 1))
    return [share.reshape(_kept(x, attrs.axes)).broadcast(x.sizes)]


@derivative(reduce.Max, reduce.Min)
def _extreme_derivative(step: DerivativeStep, attrs: reduce.Max.Attrs) -> Contributions:
    """To the element that was taken; among equal ones, equal shares."""
    (x,) = step.args
    kept = _kept(x, attrs.axes)
    taken = x.equals(step.result.reshape(kept))
    ones = x.number(1.0).where(taken, 0.0)
    share = step.adjoint.reshape(kept) / ones.sum(attrs.axes, keepdims=True)
    return [share.where(taken, 0.0)]


@derivative(reduce.Prod)
def _product_derivative(step: DerivativeStep, attrs: reduce.Prod.Attrs) -> Contributions:
    """The product of all other elements, by running products from both ends; right at zeros too."""
    (x,) = step.args
    rest = [axis for axis in range(x.type.rank) if axis not in attrs.axes]
    order = [*rest, *attrs.axes]
    rows = x.transpose(order)
    count = prod(x.sizes[axis] for axis in attrs.axes)
    flat = rows.reshape((*(x.sizes[axis] for axis in rest), count))
    before, after = (
        flat.apply(
            cumulative.Cumprod,
            attrs=cumulative.RunningAttrs(axis=len(rest), exclusive=True, reverse=reverse),
        )
        for reverse in (False, True)
    )
    others = (before * after).reshape(rows.sizes)
    others = others.transpose([order.index(axis) for axis in range(x.type.rank)])
    return [step.adjoint.reshape(_kept(x, attrs.axes)) * others]


@simplification(ReduceOp)
def drop_empty_reduction(expr: Expr) -> Expr | None:
    """mean(x, axes=()) --> x"""
    match expr:
        case Call(args=(x,), attrs=ReduceOp.Attrs(axes=())) if x.type == expr.type:
            return x
        case _:
            return None


@simplification(ReduceOp)
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


DERIVATIVES.refuse("truth values have no slope", reduce.Any, reduce.All)
DERIVATIVES.refuse("an index has no slope", reduce.ArgOp)
INTEGER_FORMS.refuse("sums and products outgrow 32 bits", reduce.Sum, reduce.Prod)
INTEGER_FORMS.refuse("it is not known to come quantized: maximum is", reduce.Min)
INTEGER_FORMS.refuse("truth values are not quantized", reduce.Any, reduce.All)
INTEGER_FORMS.refuse("an index is not quantized", reduce.ArgOp)
