# SPDX-License-Identifier: Apache-2.0
"""Derivatives of reductions and of softmax."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from ...ops import cumulative, reduce, softmax, unary
from .terms import Contributions, Rule, Step, Term


def _kept(x: Term, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the operand with 1 along the axes."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes))


def sum_(step: Step, attrs: reduce.Sum.Attrs) -> Contributions:
    """The same for every element."""
    (x,) = step.args
    return [step.adjoint.reshape(_kept(x, attrs.axes)).broadcast(x.sizes)]


def mean(step: Step, attrs: reduce.Mean.Attrs) -> Contributions:
    """An equal share for every element."""
    (x,) = step.args
    count = prod(x.sizes[axis] for axis in attrs.axes)
    share = step.adjoint * (1 / max(count, 1))
    return [share.reshape(_kept(x, attrs.axes)).broadcast(x.sizes)]


def extreme(step: Step, attrs: reduce.Max.Attrs) -> Contributions:
    """To the element that was taken; among equal ones, equal shares."""
    (x,) = step.args
    kept = _kept(x, attrs.axes)
    taken = x.equals(step.result.reshape(kept))
    ones = x.number(1.0).where(taken, 0.0)
    share = step.adjoint.reshape(kept) / ones.sum(attrs.axes, keepdims=True)
    return [share.where(taken, 0.0)]


def product(step: Step, attrs: reduce.Prod.Attrs) -> Contributions:
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


def softmax_(step: Step, attrs: softmax.Softmax.Attrs) -> Contributions:
    """``y * (dy - sum(dy * y))``."""
    weighted = step.adjoint * step.result
    total = weighted.sum((attrs.axis,), keepdims=True)
    return [weighted - step.result * total]


def log_softmax(step: Step, attrs: softmax.LogSoftmax.Attrs) -> Contributions:
    """``dy - softmax(x) * sum(dy)``."""
    total = step.adjoint.sum((attrs.axis,), keepdims=True)
    return [step.adjoint - step.result.apply(unary.Exp) * total]


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "max": extreme,
        "mean": mean,
        "min": extreme,
        "nn.log_softmax": log_softmax,
        "nn.softmax": softmax_,
        "prod": product,
        "sum": sum_,
    }
)
