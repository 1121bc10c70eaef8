# SPDX-License-Identifier: Apache-2.0
"""Steps of gated recurrent units: where the reset gate multiplies the product, and the state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from intarsia_runtime.dtype import DType

from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, let, load, seq
from ..tir.expr import PrimExpr
from ..tir.stmt import Stmt
from .recurrent_loops import Layer, Reader, flushed, items, set_items, sigmoid_of, tanh_of
from .recurrent_rows import Group


def gru_before(layer: Layer, at: PrimExpr, group: Group) -> Stmt:
    """A step whose reset gate multiplies the product with the state."""
    bias, hidden = layer.given[3], layer.hidden

    def block(j: PrimExpr, width: int) -> Stmt:
        def start(row: PrimExpr, gate: int) -> PrimExpr:
            own = items(bias, j + gate * hidden, width)
            return own if gate == 2 else layer.gate(at, row, gate, j, width) + own

        def one(row: PrimExpr, j: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            width = sums[0].lanes
            reset = sigmoid_of(layer.limited(sums[1]))
            inner = layer.limited(layer.gate(at, row, 2, j, width) + reset * sums[2])
            old = items(layer.final, row, j, width)

            def put(new: PrimExpr) -> Stmt:
                update = sigmoid_of(layer.limited(sums[0]))
                return layer.put(at, row, j, new + update * (old - new))

            return let(tanh_of(inner), put, "new")

        return layer.updates(group, range(3), j, width, start, one)

    return layer.over(block)


def gru_after(layer: Layer, at: PrimExpr, group: Group) -> Stmt:
    """A step whose reset gate multiplies the state."""
    bias, hidden = layer.given[3], layer.hidden
    update, reset = (
        Buffer(name, (group.most, hidden), DType.FLOAT32, MemoryScope.STACK)
        for name in ("update", "reset")
    )

    def start(j: PrimExpr, width: int, row: PrimExpr, gate: int) -> PrimExpr:
        return layer.gate(at, row, gate, j, width) + items(bias, j + gate * hidden, width)

    def gates(j: PrimExpr, width: int) -> Stmt:
        def one(row: PrimExpr, j: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            old = items(layer.final, row, j, sums[0].lanes)
            z, r = (sigmoid_of(layer.limited(total)) for total in sums)
            kept = set_items(reset, group.place(row), j, flushed(r * old))
            return seq(set_items(update, group.place(row), j, z), kept)

        return layer.updates(group, range(2), j, width, partial(start, j, width), one)

    def new(j: PrimExpr, width: int) -> Stmt:
        def one(row: PrimExpr, j: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            width = sums[0].lanes
            old, part = (
                items(layer.final, row, j, width),
                items(update, group.place(row), j, width),
            )

            def put(value: PrimExpr) -> Stmt:
                return layer.put(at, row, j, value + part * (old - value))

            return let(tanh_of(layer.limited(sums[0])), put, "new")

        def state(row: PrimExpr) -> Reader:
            return partial(load, reset, group.place(row))

        return layer.updates(group, (2,), j, width, partial(start, j, width), one, state)

    return allocate((update, reset), seq(layer.over(gates), layer.over(new)))
