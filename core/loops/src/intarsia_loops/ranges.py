# SPDX-License-Identifier: Apache-2.0
"""Loop splitting: ranges of a loop over which every comparison of its variable is constant.

At the borders of a padded row an element is computed in another way than in the interior. A loop
that is split there has no comparisons in the interior, and can be vectorized.
"""

from __future__ import annotations

from msgspec import Struct

from intarsia_ir.tir.expr import Binary, BinaryOp, IfThenElse, IntImm, PrimExpr, Select, TirVar
from intarsia_ir.tir.tensor import Axis
from intarsia_ir.tir.walk import children, post_order, rewrite
from intarsia_runtime.dtype import DType

MOST = 8
"""Ranges of a loop beyond which it is left as it is: each is another copy of the body."""


class Range(Struct, frozen=True):
    """Part of a loop.

    Attributes:
        start: The first value of the variable.
        extent: How many there are.
        value: What is computed at each, without comparisons that are the same for all.
    """

    start: int
    extent: int
    value: PrimExpr


def split_ranges(value: PrimExpr, axis: Axis) -> tuple[Range, ...] | None:
    """Cut a loop where comparisons of its variable change; ``None`` if they do nowhere."""
    open_ranges = [Range(0, axis.extent, value)]
    done: list[Range] = []
    while open_ranges:
        if len(done) + len(open_ranges) > MOST:
            return None
        part = open_ranges.pop()
        folded, cut = _folded(part, axis.var)
        if cut is None:
            done.append(Range(part.start, part.extent, folded))
            continue
        end = part.start + part.extent
        open_ranges.append(Range(cut, end - cut, folded))
        open_ranges.append(Range(part.start, cut - part.start, folded))
    return tuple(done) if len(done) > 1 else None


def _folded(part: Range, var: TirVar) -> tuple[PrimExpr, int | None]:
    """Return a range's value with what is known folded, and the first place where more will be."""
    lines = _Lines(var)
    cuts: list[int] = []

    def rule(node: PrimExpr) -> PrimExpr | None:
        match node:
            case (
                Select(condition=IntImm(value=outcome))
                | IfThenElse(condition=IntImm(value=outcome))
            ):
                return node.a if outcome else node.b
            case Binary():
                return on_binary(node)
            case _:
                return None

    def on_binary(node: Binary) -> PrimExpr | None:
        if node.op is BinaryOp.AND and node.dtype is DType.BOOL:
            return _conjunction(node)
        line = lines.below_zero(node)
        if line is None:
            return None
        first, last = (_is_below(line, at) for at in (part.start, part.start + part.extent - 1))
        if first != last:
            cuts.append(_change(line))
            return None
        match node.op:
            case BinaryOp.MIN:
                return node.a if first else node.b
            case BinaryOp.MAX:
                return node.b if first else node.a
            case _:
                return IntImm(int(first), DType.BOOL)

    folded = rewrite(part.value, rule)
    return folded, min(cuts, default=None)


def _conjunction(node: Binary) -> PrimExpr | None:
    for outcome, other in ((node.a, node.b), (node.b, node.a)):
        if isinstance(outcome, IntImm):
            return other if outcome.value else outcome
    return None


def _is_below(line: tuple[int, int], at: int) -> bool:
    slope, offset = line
    return slope * at + offset < 0


def _change(line: tuple[int, int]) -> int:
    """Return the first place at which a line is on another side of zero than before."""
    slope, offset = line
    return -(offset // slope) if slope > 0 else offset // -slope + 1


class _Lines:
    """Index expressions as ``slope * variable + offset``."""

    def __init__(self, var: TirVar) -> None:
        self._var = var
        self._outcome_by_node: dict[PrimExpr, tuple[int, int] | None] = {}

    def below_zero(self, node: Binary) -> tuple[int, int] | None:
        """Return a line that is below zero where a comparison holds; ``None`` if it is no line.

        Of a minimum: where the first operand is not the larger; of a maximum: where it is smaller.
        """
        if not _compares(node.op) or not node.a.dtype.is_integer:
            return None
        a, b = self._of(node.a), self._of(node.b)
        if a is None or b is None or a[0] == b[0] == 0:
            return None
        slope, offset = a[0] - b[0], a[1] - b[1]
        match node.op:
            case BinaryOp.LE | BinaryOp.MIN:
                return slope, offset - 1
            case BinaryOp.GT:
                return -slope, -offset
            case BinaryOp.GE:
                return -slope, -offset - 1
            case _:
                return slope, offset

    def _of(self, expr: PrimExpr) -> tuple[int, int] | None:
        for node in post_order(expr):
            if node not in self._outcome_by_node:
                self._outcome_by_node[node] = self._line(node)
        return self._outcome_by_node[expr]

    def _line(self, node: PrimExpr) -> tuple[int, int] | None:
        if node is self._var:
            return 1, 0
        if isinstance(node, IntImm):
            return 0, node.value
        if not isinstance(node, Binary):
            return None
        a, b = (self._outcome_by_node[child] for child in children(node))
        if a is None or b is None:
            return None
        match node.op:
            case BinaryOp.ADD:
                return a[0] + b[0], a[1] + b[1]
            case BinaryOp.SUB:
                return a[0] - b[0], a[1] - b[1]
            case BinaryOp.MUL if b[0] == 0:
                return a[0] * b[1], a[1] * b[1]
            case BinaryOp.MUL if a[0] == 0:
                return b[0] * a[1], b[1] * a[1]
            case _:
                return None


def _compares(op: BinaryOp) -> bool:
    return op in (
        BinaryOp.LT,
        BinaryOp.LE,
        BinaryOp.GT,
        BinaryOp.GE,
        BinaryOp.MIN,
        BinaryOp.MAX,
    )
