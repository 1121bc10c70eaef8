# SPDX-License-Identifier: Apache-2.0
"""Rules about element-wise arithmetic.

Adding zero is dropped although ``-0.0 + 0.0`` is ``0.0``: no rule promises the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import IntarsiaError
from ...ir.expr import Call, Expr, call
from ...ir.types import Type
from ...ir.walk import RewriteRule
from ...ops import OPERATORS
from ...ops.shape import BroadcastTo
from ...ops.unary import Cast, Clip
from .constants import is_float, is_scalar, scalar_value

BROADCASTING = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "floor_mod",
    "trunc_mod",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "where",
)


def drop_add_zero(expr: Expr) -> Expr | None:
    """add(x, 0) --> x"""
    match expr:
        case Call("add", (x, zero)) if is_scalar(zero, 0) and x.type == expr.type:
            return x
        case Call("add", (zero, x)) if is_scalar(zero, 0) and x.type == expr.type:
            return x
        case _:
            return None


def drop_subtract_zero(expr: Expr) -> Expr | None:
    """subtract(x, 0) --> x"""
    match expr:
        case Call("subtract", (x, zero)) if is_scalar(zero, 0) and x.type == expr.type:
            return x
        case _:
            return None


def drop_multiply_one(expr: Expr) -> Expr | None:
    """multiply(x, 1) --> x"""
    match expr:
        case Call("multiply", (x, one)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case Call("multiply", (one, x)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case _:
            return None


def drop_divide_one(expr: Expr) -> Expr | None:
    """divide(x, 1) --> x"""
    match expr:
        case Call("divide", (x, one)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case _:
            return None


def expand_power(expr: Expr) -> Expr | None:
    """power(x, 1) --> x;  power(x, 2) --> multiply(x, x)"""
    match expr:
        case Call("power", (x, one)) if is_scalar(one, 1) and x.type == expr.type:
            return x
        case Call("power", (x, two)) if is_scalar(two, 2) and x.type == expr.type and is_float(x):
            return call(OPERATORS["multiply"], x, x, span=expr.span)
        case _:
            return None


def drop_double_negative(expr: Expr) -> Expr | None:
    """negative(negative(x)) --> x"""
    match expr:
        case Call("negative", (Call("negative", (x,)),)):
            return x
        case _:
            return None


def drop_double_not(expr: Expr) -> Expr | None:
    """logical_not(logical_not(x)) --> x"""
    match expr:
        case Call("logical_not", (Call("logical_not", (x,)),)):
            return x
        case _:
            return None


def drop_repeated(expr: Expr) -> Expr | None:
    """f(f(x)) --> f(x) for abs, floor, ceil, round, sign, relu"""
    match expr:
        case Call(outer, (Call(inner, (_,)) as once,)) if outer == inner:
            return once
        case _:
            return None


def drop_known_where(expr: Expr) -> Expr | None:
    """where(true, a, b) --> a;  where(c, a, a) --> a"""
    match expr:
        case Call("where", (_, a, b)) if a is b and a.type == expr.type:
            return a
        case Call("where", (flag, a, b)):
            value = scalar_value(flag)
            chosen = a if value else b
            return chosen if value is not None and chosen.type == expr.type else None
        case _:
            return None


def drop_cast_to_same(expr: Expr) -> Expr | None:
    """cast(x, the type x has) --> x"""
    match expr:
        case Call("cast", (x,), Cast.Attrs()) if x.type == expr.type:
            return x
        case _:
            return None


def drop_quantised_round_trip(expr: Expr) -> Expr | None:
    """cast(cast(clip(round(x), 0, 255), uint8), float32) --> clip(round(x), 0, 255)

    Whole numbers within the range of the integer type come back as they were; only a NaN, which is
    no number in the integer type, stays one.
    """
    match expr:
        case Call(
            "cast",
            (
                Call(
                    "cast",
                    (Call("clip", (x,), Clip.Attrs(min=low, max=high)) as y,),
                    Cast.Attrs(dtype=d),
                ),
            ),
        ) if y.type == expr.type and d.is_integer and is_float(y):
            whole = float(low).is_integer() and float(high).is_integer()
            bottom = -(2.0 ** (d.bits - 1)) if d.is_signed else 0.0
            fits = bottom <= low <= high <= bottom + 2.0**d.bits - 1 and d.bits <= 16
            return y if whole and fits and _is_whole(x) else None
        case _:
            return None


def _is_whole(expr: Expr) -> bool:
    """Whether every element is known to be a whole number: rounded, then perhaps shifted by one."""
    match expr:
        case Call("round"):
            return True
        case Call("add" | "subtract", (Call("round"), shift)) | Call("add", (shift, Call("round"))):
            value = scalar_value(shift)
            return value is not None and value.is_integer() and abs(value) <= 65536
        case _:
            return False


def drop_broadcast_before_elementwise(expr: Expr) -> Expr | None:
    """add(broadcast_to(x), y) --> add(x, y) if the result keeps its shape"""
    match expr:
        case Call(args=args) if any(isinstance(a, Call) and a.name == "broadcast_to" for a in args):
            return _without_broadcasts(expr)
        case _:
            return None


def _without_broadcasts(expr: Call) -> Expr | None:
    """Drop every broadcast that the others make up for, from the last to the first."""
    args = list(expr.args)
    changed = False
    for i in reversed(range(len(args))):
        match args[i]:
            case Call("broadcast_to", (x,), BroadcastTo.Attrs()):
                trial = [*args[:i], x, *args[i + 1 :]]
                if _type_over(expr, trial) == expr.type:
                    args = trial
                    changed = True
            case _:
                pass
    return call(expr.op, *args, attrs=expr.attrs, span=expr.span) if changed else None


def _type_over(expr: Call, args: Sequence[Expr]) -> Type | None:
    """Return the type of ``expr`` over other operands, or ``None`` if it does not accept them."""
    try:
        return expr.op.type_rule(expr.attrs, *(arg.type for arg in args))
    except IntarsiaError:
        return None


ARITHMETIC: tuple[tuple[str, RewriteRule], ...] = (
    ("add", drop_add_zero),
    ("subtract", drop_subtract_zero),
    ("multiply", drop_multiply_one),
    ("divide", drop_divide_one),
    ("power", expand_power),
    ("negative", drop_double_negative),
    ("logical_not", drop_double_not),
    ("abs", drop_repeated),
    ("floor", drop_repeated),
    ("ceil", drop_repeated),
    ("round", drop_repeated),
    ("sign", drop_repeated),
    ("nn.relu", drop_repeated),
    ("where", drop_known_where),
    ("cast", drop_cast_to_same),
    ("cast", drop_quantised_round_trip),
    *((name, drop_broadcast_before_elementwise) for name in BROADCASTING),
)
