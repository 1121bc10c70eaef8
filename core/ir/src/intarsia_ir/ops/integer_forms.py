# SPDX-License-Identifier: Apache-2.0
"""The form of operators on integers: what becomes of them between dequantize and quantize.

Operators that move elements, and those that pick the largest, are the same on integers: scales are
positive, so the order of the real numbers is that of the integers. Others have an operator of their
own on integers, or are computed in float32 and say why. Element-wise operators of one tensor need
no form of their own: they become a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..graph.expr import Call, Constant, Expr, TupleGetItem, call, constant, tensor_type
from ..graph.op import Op, OpAttrs
from ..graph.rule_table import RuleTable, guarded_rule
from .arrays import Array
from .qnn import Dequantize, Requantize, quantized
from .shape import Transpose
from .stored import Stored, equal, flat, stored
from .unary import Clip

Parameters: TypeAlias = tuple[Constant, Constant]
"""Scale and zero point that a result is quantized with: scalars."""

Quantized: TypeAlias = Callable[[Call, Parameters], "Expr | None"]
"""``quantize(expr)`` as an operator on integers; ``None`` if none is right within one quantum."""

Move: TypeAlias = Callable[[Expr], "Expr | None"]
"""``op(dequantize(x)) --> dequantize(op(x))``, every bit of the result kept, or ``None``."""


class IntegerForm(Struct, frozen=True):
    """What is known of an operator on integers.

    Attributes:
        quantized: Makes the operator on integers for a quantized result.
        passes: Whether with these attributes it gives the same for integers as for real numbers.
        move: Moves dequantization behind it, where that is more than to apply it to the integers.
        limits: Between which real numbers it limits its operand, which is all it does.
    """

    quantized: Quantized | None = None
    passes: Callable[[OpAttrs], bool] | None = None
    move: Move | None = None
    limits: Callable[[OpAttrs], tuple[float, float]] | None = None


INTEGER_FORMS: RuleTable[IntegerForm] = RuleTable("form on integers")
"""Every operator's form; an element-wise operator needs none of its own."""


def quantized_form(*ops: type[Op]) -> Callable[[Quantized], Quantized]:
    """Register the decorated rule as the only form that operators have on integers."""

    def register(rule: Quantized) -> Quantized:
        guarded = guarded_rule(rule, "the form on integers of an operator")
        INTEGER_FORMS.give(IntegerForm(guarded), *ops)
        return rule

    return register


def give_passing(*ops: type[Op], where: Callable[[OpAttrs], bool] | None = None) -> None:
    """Say that operators give the same for integers as for real numbers, perhaps not always."""
    INTEGER_FORMS.give(IntegerForm(passes=_always if where is None else where), *ops)


def _always(_attrs: OpAttrs) -> bool:
    return True


def passes(expr: Call) -> bool:
    """Whether a call gives the same for integers as for the real numbers they stand for."""
    form = INTEGER_FORMS.get(expr.op)
    return form is not None and form.passes is not None and form.passes(expr.attrs)


def limits_of(expr: Call) -> tuple[float, float] | None:
    """Return between which real numbers ``expr`` limits its operand, if that is all it does."""
    form = INTEGER_FORMS.get(expr.op)
    return None if form is None or form.limits is None else form.limits(expr.attrs)


def move_dequantize(expr: Expr) -> Expr | None:
    """op(dequantize(x)) --> dequantize(op(x))"""
    node = expr.tuple if isinstance(expr, TupleGetItem) else expr
    form = INTEGER_FORMS.get(node.op) if isinstance(node, Call) else None
    if form is None:
        return None
    if form.move is not None:
        return form.move(expr)
    return moved(expr) if isinstance(expr, Call) and passes(expr) else None


def moved(expr: Call) -> Expr | None:
    """Apply a call to the integers of its first operand; other operands stay."""
    source = stored(expr.args[0]) if expr.args else None
    if source is None:
        return None
    value = source.value
    if source.scalars is None:
        match expr.attrs:
            case Transpose.Attrs(axes=axes):
                source = _transposed(source, axes)
            case _:
                return None
    made = call(expr.op, value, *expr.args[1:], attrs=expr.attrs, span=expr.span)
    return real(made, source, expr)


def _transposed(source: Stored, axes: tuple[int, ...]) -> Stored:
    """Return scale and zero point that fit the transposed tensor."""
    rank = tensor_type(source.value).rank
    found: list[Constant] = []
    for parameter in (source.scale, source.zero):
        if parameter.data.size == 1:
            found.append(flat(parameter, ()))
            continue
        whole = parameter.data.reshape((1,) * (rank - parameter.data.ndim) + parameter.data.shape)
        found.append(constant(np.ascontiguousarray(whole.transpose(axes)), name=parameter.name))
    return replace(source, scale=found[0], zero=found[1])


def real(value: Expr, like: Stored, expr: Expr) -> Expr:
    """Return integers as the real numbers that they stand for, as ``like``'s do."""
    scale, zero = like.scalars or (like.scale, like.zero)
    return call(Dequantize, value, scale, zero, span=expr.span)


def requantized(expr: Call, source: Stored, result: Parameters) -> Expr | None:
    """quantize(dequantize(x)) --> x, or x under the new scale"""
    own = source.scalars
    same = own is not None and equal(own[0], result[0]) and equal(own[1], result[1])
    if same and source.dtype.bits <= 16:
        return source.value
    return call(Requantize, source.value, source.scale, source.zero, *result, span=expr.span)


def each_operand(expr: Call, result: Parameters, *, first: int = 0) -> Expr | None:
    """quantize(op(dequantize(x), ...)) --> op(x under the new scale, ...)

    For operators whose result is one of their operands' elements: rounding never swaps two numbers.

    Args:
        expr: The call.
        result: Scale and zero point of the result.
        first: The first operand that elements are taken from.
    """
    parts: list[Expr] = []
    for arg in expr.args[first:]:
        found = stored(arg)
        part = None if found is None else requantized(expr, found, result)
        if part is None:
            return None
        parts.append(part)
    return call(expr.op, *expr.args[:first], *parts, attrs=expr.attrs, span=expr.span)


def clipped(value: Expr, low: float, high: float, like: Call) -> Expr:
    """Limit integers; the same expression where the limits are beyond the element type."""
    limits = np.iinfo(tensor_type(value).dtype.value)
    if low <= limits.min and high >= limits.max:
        return value
    attrs = Clip.Attrs(
        min=low if low > limits.min else -math.inf, max=high if high < limits.max else math.inf
    )
    return call(Clip, value, attrs=attrs, span=like.span)


def as_stored(number: float, scale: Array, zero: Array) -> float:
    """Return the integer that stands for a real number; infinities stay."""
    if math.isinf(number):
        return number
    return float(quantized(np.asarray(number, np.float32), scale, zero))
