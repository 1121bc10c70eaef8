# SPDX-License-Identifier: Apache-2.0
"""A step of a recurrent layer whose weight is of whole numbers and whose state is rounded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from intarsia_runtime.dtype import DType

from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, let, load, seq, serial, store
from ..tir.expr import (
    BinaryOp,
    PrimExpr,
    ReduceLanes,
    const,
    equal,
    index,
    intrinsic,
    maximum,
    minimum,
    select,
)
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from .recurrent_loops import Layer, Sums, Update, items, set_items, spread
from .recurrent_rows import Group, Rows


def quantized_step(layer: Layer, at: PrimExpr, group: Group, update: Update) -> Stmt:
    """Round states, add their products to the gates, and do ``update(row, first, gates)`` with all.

    Products of a byte and of a byte less a zero point are whole numbers below 2**16, so sums of
    256 of them, and of more unless all are large, are exact in float32: they are those of int32.

    Sums of 64 neighbours, 8 of 16 ymm registers, take whole cache lines of an int8 weight. By gate,
    16 columns of each, a line would be fetched four times: its rows are too far apart for the L1.
    """
    hidden = layer.hidden
    rounded, totals = (
        Buffer(name, (group.most, count), DType.FLOAT32, MemoryScope.STACK)
        for name, count in (("rounded", hidden), ("totals", 4 * hidden))
    )
    factors = Buffer("factors", (group.most,), DType.FLOAT32, MemoryScope.STACK)

    def columns(rows: Rows, j: PrimExpr, width: int, count: int) -> Stmt:
        def epilogue(sums: Sums) -> Stmt:
            parts: list[Stmt] = []
            for row, own in zip(rows, sums, strict=True):
                place = group.place(row)
                for number, total in enumerate(own):
                    at_column = j + number * width
                    factor = spread(load(factors, place), width)
                    scale = items(layer.given[4], at_column, width) * factor
                    given = items(layer.given[0], at, row, at_column, width)
                    parts.append(set_items(totals, place, at_column, given + total * scale))
            return seq(*parts)

        zeros = [[spread(const(0.0, DType.FLOAT32), width)] * count] * len(rows)
        states = [partial(load, rounded, group.place(row)) for row in rows]
        return layer.products(states, range(count), j, zeros, epilogue, width)

    def round_row(row: PrimExpr) -> Stmt:
        """Write levels of a row less that of 0, and its scale."""
        place = group.place(row)

        def keep(scale: PrimExpr, zero: PrimExpr) -> Stmt:
            return store(factors, (place,), scale)

        def write(j: PrimExpr, level: PrimExpr, zero: PrimExpr) -> Stmt:
            return set_items(rounded, place, j, level - spread(zero, level.lanes))

        return round_state(layer, row, keep, write)

    def multiply(rows: Rows) -> Stmt:
        return layer.over_vectors(4 * hidden, partial(columns, rows))

    updated = update_all(layer, group, totals, update)
    body = seq(group.rows(round_row), group.tiles(multiply), updated)
    return allocate([rounded, totals, factors], body)


def update_all(layer: Layer, group: Group, totals: Buffer, update: Update) -> Stmt:
    """Do ``update`` with the gates of all columns, a row of ``totals`` for each row of a group."""

    def block(row: PrimExpr, j: PrimExpr, width: int) -> Stmt:
        gates = [
            items(totals, group.place(row), j + gate * layer.hidden, width) for gate in range(4)
        ]
        return update(row, j, gates)

    return group.rows(lambda row: layer.over(partial(block, row)))


def round_state(
    layer: Layer,
    row: PrimExpr,
    keep: Callable[[PrimExpr, PrimExpr], Stmt],
    write: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """Round a row of the state to 256 steps from its smallest to its largest element, 0 among them.

    Args:
        layer: The layer.
        row: The row.
        keep: ``keep(scale, zero)``: what to do with the size of a step and the level of 0.
        write: ``write(first, levels, zero)``: what to do with levels, 0 to 255 as floats.
    """
    lanes = layer.width if layer.hidden % layer.width == 0 else 1
    low, high = (
        Buffer(name, (lanes,), DType.FLOAT32, MemoryScope.REGISTER) for name in ("low", "high")
    )
    zero = spread(const(0.0, DType.FLOAT32), lanes)

    def widen(number: PrimExpr) -> Stmt:
        def both(value: PrimExpr) -> Stmt:
            lowest, highest = (items(buffer, index(0), lanes) for buffer in (low, high))
            return seq(
                set_items(low, index(0), minimum(lowest, value)),
                set_items(high, index(0), maximum(highest, value)),
            )

        return let(items(layer.final, row, number * lanes, lanes), both, "state")

    def with_scale(scale: PrimExpr) -> Stmt:
        start = maximum(const(0.0, DType.FLOAT32) - least / scale, 0.0)

        def with_zero(point: PrimExpr) -> Stmt:
            def block(j: PrimExpr, width: int) -> Stmt:
                ratio = items(layer.final, row, j, width) / spread(scale, width)
                level = intrinsic(Intrinsic.ROUND, ratio) + spread(point, width)
                return write(j, minimum(maximum(level, 0.0), 255.0), point)

            return seq(keep(scale, point), layer.over(block))

        return let(intrinsic(Intrinsic.ROUND, minimum(start, 255.0)), with_zero, "zero")

    least, most = (
        items(buffer, index(0), lanes)
        if lanes == 1
        else ReduceLanes(op, items(buffer, index(0), lanes), DType.FLOAT32)
        for op, buffer in ((BinaryOp.MIN, low), (BinaryOp.MAX, high))
    )
    span = most - least
    scale = select(equal(span, 0.0), const(1.0, DType.FLOAT32), span / 255.0)
    return allocate(
        [low, high],
        seq(
            set_items(low, index(0), zero),
            set_items(high, index(0), zero),
            serial(layer.hidden // lanes, widen, "k"),
            let(scale, with_scale, "scale"),
        ),
    )
