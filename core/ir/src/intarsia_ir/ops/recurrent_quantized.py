# SPDX-License-Identifier: Apache-2.0
"""A step of a recurrent layer whose weight is of whole numbers and whose state is rounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from intarsia_runtime.dtype import DType

from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, cell, get, let, load, put, seq, serial, store
from ..tir.expr import PrimExpr, const, equal, index, intrinsic, maximum, minimum, select
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from .recurrent_loops import Layer, Rows, Sums, blocks, items, readers, set_items, spread


def quantized_step(
    layer: Layer,
    at: PrimExpr,
    rows: Rows,
    update: Callable[[PrimExpr, PrimExpr, Sequence[PrimExpr]], Stmt],
) -> Stmt:
    """Round states, add their products to the gates, and do ``update(row, first, gates)`` with all.

    Products of a byte and of a byte less a zero point are whole numbers below 2**16, so sums of
    256 of them, and of more unless all are large, are exact in float32: they are those of int32.

    Sums of 64 neighbours, 8 of 16 ymm registers, take whole cache lines of an int8 weight. By gate,
    16 columns of each, a line would be fetched four times: its rows are too far apart for the L1.
    """
    hidden = layer.hidden
    rounded, totals = (
        Buffer(name, (len(rows), count), DType.FLOAT32, MemoryScope.STACK)
        for name, count in (("rounded", hidden), ("totals", 4 * hidden))
    )
    factors = Buffer("factors", (len(rows),), DType.FLOAT32, MemoryScope.STACK)

    def columns(j: PrimExpr, width: int, count: int) -> Stmt:
        def epilogue(sums: Sums) -> Stmt:
            parts: list[Stmt] = []
            for place, (row, own) in enumerate(zip(rows, sums, strict=True)):
                for number, total in enumerate(own):
                    at_column = j + number * width
                    factor = spread(load(factors, place), width)
                    scale = items(layer.given[4], at_column, width) * factor
                    given = items(layer.given[0], at, row, at_column, width)
                    parts.append(set_items(totals, index(place), at_column, given + total * scale))
            return seq(*parts)

        zeros = [[spread(const(0.0, DType.FLOAT32), width)] * count] * len(rows)
        return layer.products(readers(rounded, rows), range(count), j, zeros, epilogue, width)

    def block(j: PrimExpr, width: int) -> Stmt:
        return seq(
            *(
                update(
                    row,
                    j,
                    [items(totals, index(n), j + gate * hidden, width) for gate in range(4)],
                )
                for n, row in enumerate(rows)
            )
        )

    body = [_round(layer, row, rounded, factors, n) for n, row in enumerate(rows)]
    done = 0
    widest = layer.width
    for width, count in ((widest, 4), (widest, 1), (8, 1), (4, 1)):
        number = (4 * hidden - done) // (width * count)
        if number:
            step = partial(columns, width=width, count=count)
            body.append(blocks(done, number, width * count, lambda j, _, step=step: step(j)))
        done += number * width * count
    return allocate([rounded, totals, factors], seq(*body, layer.over(block)))


def _round(layer: Layer, row: PrimExpr, rounded: Buffer, factors: Buffer, number: int) -> Stmt:
    """Write a row of the state, rounded, and its scale, as row ``number`` of the results."""
    low, high = (cell(name, DType.FLOAT32) for name in ("low", "high"))
    zero = const(0.0, DType.FLOAT32)

    def widen(k: PrimExpr) -> Stmt:
        def both(value: PrimExpr) -> Stmt:
            return seq(put(low, minimum(get(low), value)), put(high, maximum(get(high), value)))

        return let(load(layer.final, row, k), both, "state")

    def with_scale(scale: PrimExpr) -> Stmt:
        start = intrinsic(Intrinsic.ROUND, minimum(maximum(zero - get(low) / scale, 0.0), 255.0))

        def with_zero(point: PrimExpr) -> Stmt:
            def block(j: PrimExpr, width: int) -> Stmt:
                offset = spread(point, width)
                ratio = items(layer.final, row, j, width) / spread(scale, width)
                level = intrinsic(Intrinsic.ROUND, ratio) + offset
                return set_items(
                    rounded, index(number), j, minimum(maximum(level, 0.0), 255.0) - offset
                )

            return seq(store(factors, (number,), scale), layer.over(block))

        return let(start, with_zero, "zero")

    span = get(high) - get(low)
    scale = select(equal(span, 0.0), const(1.0, DType.FLOAT32), span / 255.0)
    found = serial(layer.hidden, widen, "k")
    body = seq(put(low, zero), put(high, zero), found, let(scale, with_scale, "scale"))
    return allocate([low, high], body)
