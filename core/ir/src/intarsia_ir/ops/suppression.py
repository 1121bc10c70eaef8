# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: of boxes that overlap, the one with the highest score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, TensorType, TupleType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, cell, get, lets, load, parallel, put, seq, serial, store
from ..tir.expr import (
    INDEX,
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    TirVar,
    const,
    equal,
    index,
    maximum,
    minimum,
    select,
)
from ..tir.func import PrimFunc
from ..tir.stmt import IfStmt, Stmt, Store
from ..tir.tensor import extents
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import operands, same_size, shape_text

_LANES = 32
_GONE = float("-inf")


@operator("nn.non_max_suppression", OpKind.OPAQUE)
class NonMaxSuppression(Op):
    """Choose boxes by their scores, of each class apart, that overlap none chosen before too far.

    Operands: ``[batch, 4, boxes]`` with lower and upper corner, ``y0, x0, y1, x1``; and scores,
    ``[batch, classes, boxes]``. Results: the chosen boxes in order, zeros behind them, int64
    ``[batch, classes, count]``; how many they are, int64 ``[batch, classes]``; and the scores of
    boxes that are left when ``count`` are chosen, negative infinity elsewhere. Boxes overlap too
    far if what they share is more than ``overlap`` of what they cover together; one whose upper
    corner lies below the lower one shares nothing. A third operand, float32 ``[2]``, has
    ``overlap`` and ``least`` instead of the attributes.
    """

    fixed_sizes = "the last of the boxes': it is 4"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``count``: most boxes of a class; ``overlap``; ``least``: what a score must exceed."""

        count: int
        overlap: float
        least: float = _GONE

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """Boxes chosen, their number, and the scores that are left."""
        corners, scores, *limits = operands(cls.name, types, 2, 3)
        if any(limit != TensorType((2,), DType.FLOAT32) for limit in limits):
            raise TypeRuleError(f"{cls.name}: limits are two of float32, got {limits[0]}")
        if {corners.dtype, scores.dtype} != {DType.FLOAT32}:
            raise TypeRuleError(f"{cls.name}: takes float32, got {corners} and {scores}")
        fits = scores.rank == corners.rank == 3 and corners.shape[1] == 4
        if not fits or not all(map(same_size, corners.shape[::2], scores.shape[::2])):
            raise TypeRuleError(
                f"{cls.name}: corners {shape_text(corners.shape)} do not fit scores"
                f" {shape_text(scores.shape)}"
            )
        if not isinstance(attrs.count, Dim) and attrs.count < 1:
            raise TypeRuleError(f"{cls.name}: cannot choose {attrs.count} boxes")
        classes = scores.shape[:2]
        return TupleType(
            (
                TensorType((*classes, attrs.count), DType.INT64),
                TensorType(classes, DType.INT64),
                scores,
            )
        )

    @staticmethod
    def reference(
        attrs: Attrs, corners: Array, scores: Array, *limits: Array
    ) -> tuple[Array, Array, Array]:
        """Take boxes by their scores, the first of equal ones first, and drop what overlaps."""
        pair = limits[0] if limits else np.array([attrs.overlap, attrs.least], np.float32)
        overlap, least = float(pair[0]), float(pair[1])
        places = np.zeros((*scores.shape[:2], attrs.count), np.int64)
        counts = np.zeros(scores.shape[:2], np.int64)
        left = np.full_like(scores, _GONE)
        for at in np.ndindex(*counts.shape):
            row = scores[at]
            order = np.argsort(-row, kind="stable")
            order = order[row[order] > least]
            chosen, rest = _suppressed(corners[at[0]], order, attrs.count, overlap)
            places[at][: len(chosen)], counts[at] = chosen, len(chosen)
            left[at][rest] = row[rest]
        return places, counts, left

    @staticmethod
    def loops(
        attrs: Attrs, corners: TensorType, scores: TensorType, *limits: TensorType
    ) -> PrimFunc:
        """Find the best box that is left, and look at all by vectors; classes are independent."""
        batch, classes, boxes = extents(scores.shape)
        given = Buffer("corners", (batch, 4, boxes), DType.FLOAT32)
        rated = Buffer("scores", (batch, classes, boxes), DType.FLOAT32)
        places = Buffer("places", (batch, classes, attrs.count), INDEX)
        counts = Buffer("counts", (batch, classes), INDEX)
        left = Buffer("left", (batch, classes, boxes), DType.FLOAT32)
        asked = [Buffer("limits", (2,), DType.FLOAT32)] if limits else []
        fixed = [const(float(np.float32(n)), DType.FLOAT32) for n in (attrs.overlap, attrs.least)]
        overlap, least = [load(asked[0], n) for n in range(2)] if asked else fixed

        def row(number: PrimExpr) -> Stmt:
            at = (number // classes, number % classes)
            return _ClassRow(
                attrs.count, overlap, least, given, rated, places, counts, left, at
            ).loops()

        body = parallel(batch * classes, row)
        params = (given, rated, *asked, places, counts, left)
        return PrimFunc("non_max_suppression", params, 3, body)


def _suppressed(
    corners: Array, order: Array, count: int, overlap: float
) -> tuple[list[int], Array]:
    """Choose boxes in their order, at most ``count``; return them and those that are left."""
    low_y, low_x, high_y, high_x = corners[:, order]
    near = np.stack([low_y, low_x, high_y, high_x, (high_y - low_y) * (high_x - low_x)])
    chosen: list[int] = []
    while order.size and len(chosen) < count:
        chosen.append(int(order[0]))
        best, near, order = near[:, 0], near[:, 1:], order[1:]
        height = np.minimum(best[2], near[2]) - np.maximum(best[0], near[0])
        width = np.minimum(best[3], near[3]) - np.maximum(best[1], near[1])
        shared = np.maximum(height, 0) * np.maximum(width, 0)
        together = np.maximum(best[4] + near[4] - shared, 0)  # of a turned box it may be negative
        keep = shared <= np.float32(overlap) * together
        near, order = near[:, keep], order[keep]
    return chosen, order


class _ClassRow(Struct, frozen=True):
    """One class of one image."""

    count: int
    overlap: PrimExpr
    least: PrimExpr
    corners: Buffer
    scores: Buffer
    places: Buffer
    counts: Buffer
    left: Buffer
    at: tuple[PrimExpr, PrimExpr]

    def loops(self) -> Stmt:
        """Return what chooses the boxes of the class."""
        highest, place, filled = (
            cell("highest", DType.FLOAT32),
            cell("place", INDEX),
            cell("filled", INDEX),
        )

        def choose(number: PrimExpr) -> Stmt:
            slot = (*self.at, number)
            chosen = seq(
                self._find(get(highest), place),
                store(self.places, slot, get(place)),
                put(filled, number + 1),
                self._drop(get(place), highest),
            )
            return IfStmt(get(highest) > _gone(1), chosen, store(self.places, slot, index(0)))

        return allocate(
            (highest, place, filled),
            seq(
                put(filled, index(0)),
                self._over(self._candidates, highest),
                serial(self.count, choose, "chosen"),
                store(self.counts, self.at, get(filled)),
            ),
        )

    def _over(self, value: Callable[[PrimExpr, int], PrimExpr], highest: Buffer) -> Stmt:
        """Write each reduced score, given its index and the lanes, and find the highest."""
        boxes = self.scores.shape[2]
        rest = boxes % _LANES
        best = Buffer("best", (_LANES,), DType.FLOAT32, MemoryScope.REGISTER)
        whole = (Ramp(index(0), 1, _LANES),)
        current = Load(best, whole, DType.FLOAT32, _LANES)

        def block(number: PrimExpr) -> Stmt:
            start = number * _LANES
            kept = Store(self.left, (*self.at, Ramp(start, 1, _LANES)), value(start, _LANES))
            items = _items(self.left, self.at, start, _LANES)
            return seq(kept, Store(best, whole, maximum(current, items)))

        def tail(number: PrimExpr) -> Stmt:
            at = (*self.at, number + (boxes - rest))
            kept = store(self.left, at, value(at[-1], 1))
            return seq(kept, put(highest, maximum(get(highest), load(self.left, *at))))

        return allocate(
            (best,),
            seq(
                Store(best, whole, _gone(_LANES)),
                serial(boxes // _LANES, block, "block"),
                put(highest, ReduceLanes(BinaryOp.MAX, current, DType.FLOAT32)),
                serial(rest, tail, "at"),
            ),
        )

    def _candidates(self, start: PrimExpr, lanes: int) -> PrimExpr:
        items = _items(self.scores, self.at, start, lanes)
        return select(items > _spread(self.least, lanes), items, _gone(lanes))

    def _find(self, value: PrimExpr, place: Buffer) -> Stmt:
        """Find the first of the highest scores."""
        boxes = self.scores.shape[2]
        rest = boxes % _LANES
        missing = get(place) < index(0)

        def check(where: PrimExpr) -> Stmt:
            same = equal(load(self.left, *self.at, where), value)
            return IfStmt(get(place) < index(0), IfStmt(same, put(place, where)))

        def block(number: PrimExpr) -> Stmt:
            start = number * _LANES
            same = equal(
                _items(self.left, self.at, start, _LANES), Broadcast(value, _LANES, DType.FLOAT32)
            )
            some = ReduceLanes(BinaryOp.OR, same, DType.BOOL)
            return IfStmt(missing, IfStmt(some, serial(_LANES, lambda at: check(start + at), "at")))

        return seq(
            put(place, index(-1)),
            serial(boxes // _LANES, block, "block"),
            serial(rest, lambda at: check(at + (boxes - rest)), "at"),
        )

    def _drop(self, place: PrimExpr, highest: Buffer) -> Stmt:
        """Remove a chosen box, and those that overlap it too far, from the candidates."""
        names = ("low_y", "low_x", "high_y", "high_x")
        own = [TirVar(name, DType.FLOAT32) for name in names]
        values = [load(self.corners, self.at[0], side, place) for side in range(4)]

        def value(start: PrimExpr, lanes: int) -> PrimExpr:
            low_y, low_x, high_y, high_x = (_spread(side, lanes) for side in own)
            other = [
                _items(self.corners, (self.at[0], index(side)), start, lanes) for side in range(4)
            ]
            zero = _spread(const(0.0, DType.FLOAT32), lanes)
            height = minimum(high_y, other[2]) - maximum(low_y, other[0])
            width = minimum(high_x, other[3]) - maximum(low_x, other[1])
            shared = maximum(height, zero) * maximum(width, zero)
            mine = (high_y - low_y) * (high_x - low_x)
            area = (other[2] - other[0]) * (other[3] - other[1])
            limit = _spread(self.overlap, lanes)
            keep = shared <= limit * maximum(mine + area - shared, zero)
            return select(keep, _items(self.left, self.at, start, lanes), _gone(lanes))

        taken = store(self.left, (*self.at, place), _gone(1))
        return lets(own, values, seq(taken, self._over(value, highest)))


def _items(buffer: Buffer, at: tuple[PrimExpr, ...], start: PrimExpr, lanes: int) -> Load:
    where = start if lanes == 1 else Ramp(start, 1, lanes)
    return Load(buffer, (*at, where), buffer.dtype, lanes)


def _spread(value: PrimExpr, lanes: int) -> PrimExpr:
    return value if lanes == 1 else Broadcast(value, lanes, value.dtype)


def _gone(lanes: int) -> PrimExpr:
    return _spread(const(_GONE, DType.FLOAT32), lanes)


DERIVATIVES.refuse("an index has no slope", NonMaxSuppression)
INTEGER_FORMS.refuse("overlaps of boxes are compared as real numbers", NonMaxSuppression)
