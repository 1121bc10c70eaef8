# SPDX-License-Identifier: Apache-2.0
"""Loop splitting: ranges of a loop over which every comparison of its variable is constant.

At the borders of a padded row an element is computed in another way than in the interior. A loop
that is split there has no comparisons in the interior, and can be vectorized. Of a loop of an open
extent the borders are a number of elements at its begin and at its end.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from intarsia_ir.graph.types import Dim, Size, variable
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    IfThenElse,
    IntImm,
    PrimExpr,
    Select,
    TirVar,
    size_variable,
)
from intarsia_ir.tir.tensor import Axis
from intarsia_ir.tir.walk import children, post_order, rewrite
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import maximum, minimum

MOST = 8
"""Ranges of a loop beyond which it is left as it is: each is another copy of the body."""


Line: TypeAlias = "tuple[int, Size]"
"""``slope * variable + offset``."""


class Range(Struct, frozen=True):
    """Part of a loop.

    Attributes:
        start: The first value of the variable.
        extent: How many there are.
        value: What is computed at each, without comparisons that are the same for all.
    """

    start: Size
    extent: Size
    value: PrimExpr


def split_ranges(value: PrimExpr, axis: Axis) -> tuple[Range, ...] | None:
    """Cut a loop where comparisons of its variable change; ``None`` if they do nowhere."""
    extent: Size = axis.extent
    if isinstance(extent, Dim):
        return _borders(value, axis.var, extent)
    pending = [(0, extent, value)]
    done: list[Range] = []
    while pending:
        if len(done) + len(pending) > MOST:
            return None
        start, count, part = pending.pop()
        outcomes = _Outcomes(start, count)
        folded = _folded(part, axis.var, outcomes)
        if not outcomes.cuts:
            done.append(Range(start, count, folded))
            continue
        cut = min(outcomes.cuts)
        pending.append((cut, start + count - cut, folded))
        pending.append((start, cut - start, folded))
    return tuple(done) if len(done) > 1 else None


def _borders(value: PrimExpr, var: TirVar, extent: Dim) -> tuple[Range, ...] | None:
    """Cut a loop of an open extent into its begin, its interior and its end.

    Begin and end keep the comparisons, so that they are right if they meet.
    """
    inside = _Inside(extent)
    folded = _folded(value, var, inside)
    if inside.low == inside.back == 0:
        return None
    low = minimum(inside.low, extent)
    high = maximum(extent - inside.back, low)
    ranges = (
        Range(0, low, value),
        Range(low, high - low, folded),
        Range(high, extent - high, value),
    )
    return tuple([part for part in ranges if part.extent != 0])


class _Outcomes(Struct):
    """What comparisons are over a range of numbers.

    Attributes:
        start: The first.
        count: How many.
        cuts: Where comparisons change that are not the same for all of them.
    """

    start: int
    count: int
    cuts: list[int] = field(default_factory=list[int])

    def of(self, slope: int, offset: Size) -> bool | None:
        """Whether a line is below zero everywhere, or nowhere."""
        if isinstance(offset, Dim):
            return None
        ends = (self.start, self.start + self.count - 1)
        first, last = (slope * at + offset < 0 for at in ends)
        if first == last:
            return first
        self.cuts.append(-(offset // slope) if slope > 0 else offset // -slope + 1)
        return None


class _Inside(Struct):
    """What comparisons are in the interior of a loop of an open extent.

    Attributes:
        extent: How many there are.
        low: Elements before the interior.
        back: Elements after it.
    """

    extent: Dim
    low: int = 0
    back: int = 0

    def of(self, slope: int, offset: Size) -> bool | None:
        """Whether a line is below zero in the interior, which gets smaller if it must."""
        if slope not in (1, -1):
            return None
        place = 0 - offset if slope > 0 else offset + 1
        back = self.extent - place
        if isinstance(place, int):
            self.low = max(self.low, place)
            return slope < 0
        if isinstance(back, int):
            self.back = max(self.back, back)
            return slope > 0
        return None


def _folded(value: PrimExpr, var: TirVar, outcomes: _Outcomes | _Inside) -> PrimExpr:
    """Return a value with the comparisons folded whose outcome is known."""
    lines = _Lines(var)

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
        first = outcomes.of(*line)
        if first is None:
            return None
        match node.op:
            case BinaryOp.MIN:
                return node.a if first else node.b
            case BinaryOp.MAX:
                return node.b if first else node.a
            case _:
                return IntImm(int(first), DType.BOOL)

    return rewrite(value, rule)


def _conjunction(node: Binary) -> PrimExpr | None:
    for outcome, other in ((node.a, node.b), (node.b, node.a)):
        if isinstance(outcome, IntImm):
            return other if outcome.value else outcome
    return None


class _Lines:
    """Index expressions as ``slope * variable + offset``."""

    def __init__(self, var: TirVar) -> None:
        self._var = var
        self._outcome_by_node: dict[PrimExpr, Line | None] = {}

    def below_zero(self, node: Binary) -> Line | None:
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

    def _of(self, expr: PrimExpr) -> Line | None:
        for node in post_order(expr):
            if node not in self._outcome_by_node:
                self._outcome_by_node[node] = self._line(node)
        return self._outcome_by_node[expr]

    def _line(self, node: PrimExpr) -> Line | None:
        if node is self._var:
            return 1, 0
        if isinstance(node, IntImm):
            return 0, node.value
        if isinstance(node, TirVar) and node is size_variable(node.name):
            return 0, variable(node.name)
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
            case BinaryOp.MUL if b[0] == 0 and isinstance(b[1], int):
                return a[0] * b[1], a[1] * b[1]
            case BinaryOp.MUL if a[0] == 0 and isinstance(a[1], int):
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
