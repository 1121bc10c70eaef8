# SPDX-License-Identifier: Apache-2.0
"""Where an element lies in its buffer: a sum, taken apart once for all copies of its loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intarsia.tir.expr import Binary, BinaryOp, IntImm, PrimExpr, Ramp


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """``constant + sum of factor * part``, in elements.

    Attributes:
        constant: What does not depend on a variable.
        parts: What is no sum itself, with its factor; innermost dimension first.
    """

    constant: int
    parts: tuple[tuple[PrimExpr, int], ...]


def position(shape: tuple[int, ...], indices: tuple[PrimExpr, ...]) -> Position:
    """Return the position of an element; of a vector's first one, if the last index is a ramp."""
    constant, stride = 0, 1
    parts: list[tuple[PrimExpr, int]] = []
    for size, index in zip(reversed(shape), reversed(indices), strict=True):
        for part, factor in _parts(index.base if isinstance(index, Ramp) else index, stride):
            if isinstance(part, IntImm):
                constant += part.value * factor
            else:
                parts.append((part, factor))
        stride *= size
    return Position(constant, tuple(parts))


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
        case _:
            yield expr, factor
