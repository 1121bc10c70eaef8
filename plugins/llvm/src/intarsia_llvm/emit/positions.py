# SPDX-License-Identifier: Apache-2.0
"""Where an element lies in its buffer: a sum, taken apart once for all copies of its loop."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, Load, PrimExpr, Ramp, TirVar
from intarsia_ir.tir.forward import is_passed_number
from intarsia_ir.tir.passes.affine import AffineSum
from intarsia_ir.tir.walk import post_order


class Position(Struct, frozen=True, eq=False):
    """``constant + sum of factor * part``, in elements.

    Attributes:
        constant: What does not depend on a variable.
        parts: What is no sum itself, with its factor; innermost dimension first.
        variables: Those that decide it; ``None`` if it is read from memory, which may change.
    """

    constant: int
    parts: tuple[tuple[PrimExpr, int], ...]
    variables: tuple[TirVar, ...] | None


def position(shape: tuple[int, ...], indices: tuple[PrimExpr, ...]) -> Position:
    """Return the position of an element; of a vector's first one, if the last index is a ramp."""
    stride = 1
    parts: list[tuple[PrimExpr, int]] = []
    for size, index in zip(reversed(shape), reversed(indices), strict=True):
        parts += _parts(index.base if isinstance(index, Ramp) else index, stride)
        stride *= size
    parts = _whole(parts)
    variable = tuple([part for part in parts if not isinstance(part[0], IntImm)])
    nodes = list(post_order(*[part for part, _ in variable]))
    return Position(
        sum(part.value * factor for part, factor in parts if isinstance(part, IntImm)),
        variable,
        None
        if any(isinstance(node, Load) for node in nodes)
        else tuple([node for node in nodes if isinstance(node, TirVar)]),
    )


def _whole(parts: list[tuple[PrimExpr, int]]) -> list[tuple[PrimExpr, int]]:
    """Replace ``f * (x % d) + f * d * (x // d)`` by ``f * x``: rows without gaps are one row."""
    for rest in parts:
        match rest:
            case (Binary(op=BinaryOp.FLOOR_MOD, a=whole, b=IntImm(value=size)), factor):
                split = [rest, *(part for part in parts if _quotient(part, whole, size, factor))]
            case _:
                continue
        if len(split) == 2:
            kept = list(parts)
            for part in split:
                kept.remove(part)  # once: the same may be added twice
            return _whole([*_parts(whole, factor), *kept])
    return parts


def _quotient(part: tuple[PrimExpr, int], whole: PrimExpr, size: int, factor: int) -> bool:
    """Whether a part is ``factor * size * (whole // size)``."""
    match part:
        case (Binary(op=BinaryOp.FLOOR_DIV, a=other, b=IntImm(value=divisor)), larger):
            same = divisor == size and larger == factor * size
            return same and _same(other, whole)
        case _:
            return False


def _same(one: PrimExpr, other: PrimExpr) -> bool:
    """Whether two indices are the same sum."""
    return one is other or _sum(one) == _sum(other)


def _sum(expr: PrimExpr) -> AffineSum:
    total = AffineSum(0, {})
    for part, factor in _parts(expr, 1):
        term = AffineSum(part.value, {}) if isinstance(part, IntImm) else AffineSum(0, {part: 1})
        total = total.plus(term, factor)
    return total


def _parts(expr: PrimExpr, factor: int) -> Iterator[tuple[PrimExpr, int]]:
    """Yield what ``factor * expr`` adds up, from left to right."""
    match expr:
        case Binary(op=BinaryOp.ADD):
            yield from _parts(expr.a, factor)
            yield from _parts(expr.b, factor)
        case Binary(op=BinaryOp.SUB):
            yield from _parts(expr.a, factor)
            yield from _parts(expr.b, -factor)
        case Binary(op=BinaryOp.MUL, b=IntImm(value=scale)):
            yield from _parts(expr.a, factor * scale)
        case Binary(op=BinaryOp.MUL, a=IntImm(value=scale)):
            yield from _parts(expr.b, factor * scale)
        case Binary(op=BinaryOp.MUL, a=Binary() as inner, b=stride) if is_passed_number(stride):
            for part, times in _parts(inner, factor):
                if isinstance(part, IntImm):
                    yield stride, part.value * times
                else:
                    yield part * stride, times
        case _:
            yield expr, factor
