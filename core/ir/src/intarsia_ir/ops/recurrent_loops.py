# SPDX-License-Identifier: Apache-2.0
"""Loops of recurrent layers: rows in parallel, steps in order, sums of the gates in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from intarsia_runtime.dtype import DType

from ..graph.types import TensorType
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, cell, get, let, load, parallel, put, seq, serial
from ..tir.expr import (
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    cast,
    const,
    equal,
    index,
    intrinsic,
    maximum,
    minimum,
    select,
)
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt, Store
from ..tir.tensor import extents

_WIDTHS = (16, 8, 4, 2, 1)
"""Columns of each gate whose sums are in registers together, the widest first."""


class Layer(Struct, frozen=True):
    """The buffers of a layer; ``last`` is the state before a step, and after all of them."""

    given: tuple[Buffer, ...]
    weight: Buffer
    states: Buffer
    final: Buffer

    @property
    def hidden(self) -> int:
        """Number of columns of the state."""
        return self.weight.shape[0]

    def over(self, block: Callable[[PrimExpr, int], Stmt]) -> Stmt:
        """Do ``block(first, width)`` for all columns of the state."""
        parts: list[Stmt] = []
        done = 0
        for width in _WIDTHS:
            count = (self.hidden - done) // width
            if count:
                parts.append(_blocks(done, count, width, block))
            done += count * width
        return seq(*parts)

    def gate(self, at: PrimExpr, row: PrimExpr, gate: int, j: PrimExpr, width: int) -> PrimExpr:
        """The inputs' part of columns of a gate."""
        return items(self.given[0], at, row, j + gate * self.hidden, width)

    def put(self, at: PrimExpr, row: PrimExpr, j: PrimExpr, value: PrimExpr) -> Stmt:
        """Write columns of the state after a step."""
        return set_items(self.states, at, row, j, value)

    def last(self, row: PrimExpr) -> Callable[[PrimExpr], PrimExpr]:
        """Read elements of the state before the step."""
        return lambda k: load(self.final, row, k)

    def products(
        self,
        state: Callable[[PrimExpr], PrimExpr],
        gates: Sequence[int],
        j: PrimExpr,
        starts: Sequence[PrimExpr],
        epilogue: Callable[[Sequence[PrimExpr]], Stmt],
        apart: int | None = None,
    ) -> Stmt:
        """Add a state's products with columns of the gates to ``starts``.

        Columns of two gates are ``apart``, as far as the state is wide if not given.
        """
        width, distance = starts[0].lanes, self.hidden if apart is None else apart
        sums = [
            Buffer(f"sum{gate}", (width,), DType.FLOAT32, MemoryScope.REGISTER) for gate in gates
        ]
        current = [items(buffer, index(0), width) for buffer in sums]

        def one(k: PrimExpr) -> Stmt:
            def add(value: PrimExpr) -> Stmt:
                parts: list[Stmt] = []
                for gate, buffer, total in zip(gates, sums, current, strict=True):
                    column = items(self.weight, k, j + gate * distance, width)
                    column = cast(column, DType.FLOAT32)
                    parts.append(
                        set_items(buffer, index(0), total + _spread(value, width) * column)
                    )
                return seq(*parts)

            return let(state(k), add, "state")

        begin = [
            set_items(buffer, index(0), start) for buffer, start in zip(sums, starts, strict=True)
        ]
        return allocate(sums, seq(*begin, serial(self.hidden, one, "k"), epilogue(current)))


def _reader(buffer: Buffer) -> Callable[[PrimExpr], PrimExpr]:
    """Read elements of a vector."""
    return lambda k: load(buffer, k)


def quantized_step(
    layer: Layer,
    at: PrimExpr,
    row: PrimExpr,
    update: Callable[[PrimExpr, Sequence[PrimExpr]], Stmt],
) -> Stmt:
    """Round the state, add its products to the gates, and do ``update(first, gates)`` with them.

    Products of a byte and of a byte less a zero point are whole numbers below 2**16, so sums of
    256 of them, and of more unless all are large, are exact in float32: they are those of int32.

    Sums of 64 neighbours, 8 of 16 ymm registers, take whole cache lines of an int8 weight. By gate,
    16 columns of each, a line would be fetched four times: its rows are too far apart for the L1.
    """
    hidden = layer.hidden
    rounded, totals = (
        Buffer(name, (count,), DType.FLOAT32, MemoryScope.STACK)
        for name, count in (("rounded", hidden), ("totals", 4 * hidden))
    )
    factor = cell("factor", DType.FLOAT32)

    def columns(j: PrimExpr, width: int, count: int) -> Stmt:
        def epilogue(sums: Sequence[PrimExpr]) -> Stmt:
            parts: list[Stmt] = []
            for number, total in enumerate(sums):
                place = j + number * width
                scale = items(layer.given[4], place, width) * _spread(get(factor), width)
                given = items(layer.given[0], at, row, place, width)
                parts.append(set_items(totals, place, given + total * scale))
            return seq(*parts)

        zeros = [_spread(const(0.0, DType.FLOAT32), width)] * count
        return layer.products(_reader(rounded), range(count), j, zeros, epilogue, width)

    def block(j: PrimExpr, width: int) -> Stmt:
        return update(j, [items(totals, j + gate * hidden, width) for gate in range(4)])

    body: list[Stmt] = [_round(layer, row, rounded, factor)]
    done = 0
    for width, count in ((16, 4), (16, 1), (8, 1), (4, 1)):
        blocks = (4 * hidden - done) // (width * count)
        if blocks:
            step = partial(columns, width=width, count=count)
            body.append(_blocks(done, blocks, width * count, lambda j, _, step=step: step(j)))
        done += blocks * width * count
    return allocate([rounded, totals, factor], seq(*body, layer.over(block)))


def _round(layer: Layer, row: PrimExpr, rounded: Buffer, factor: Buffer) -> Stmt:
    """Write a row of the state to ``rounded`` and its scale to ``factor``; see :func:`_rounded`."""
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
                offset = _spread(point, width)
                ratio = items(layer.final, row, j, width) / _spread(scale, width)
                level = intrinsic(Intrinsic.ROUND, ratio) + offset
                return set_items(rounded, j, minimum(maximum(level, 0.0), 255.0) - offset)

            return seq(put(factor, scale), layer.over(block))

        return let(start, with_zero, "zero")

    span = get(high) - get(low)
    scale = select(equal(span, 0.0), const(1.0, DType.FLOAT32), span / 255.0)
    found = serial(layer.hidden, widen, "k")
    body = seq(put(low, zero), put(high, zero), found, let(scale, with_scale, "scale"))
    return allocate([low, high], body)


def gru_before(layer: Layer, at: PrimExpr, row: PrimExpr) -> Stmt:
    """A step whose reset gate multiplies the product with the state."""
    bias, hidden = layer.given[3], layer.hidden

    def block(j: PrimExpr, width: int) -> Stmt:
        own = [items(bias, j + gate * hidden, width) for gate in range(3)]
        starts = [layer.gate(at, row, gate, j, width) + own[gate] for gate in range(2)]

        def epilogue(sums: Sequence[PrimExpr]) -> Stmt:
            inner = layer.gate(at, row, 2, j, width) + sigmoid_of(sums[1]) * sums[2]
            old = items(layer.final, row, j, width)

            def put(new: PrimExpr) -> Stmt:
                return layer.put(at, row, j, new + sigmoid_of(sums[0]) * (old - new))

            return let(tanh_of(inner), put, "new")

        return layer.products(layer.last(row), range(3), j, [*starts, own[2]], epilogue)

    return layer.over(block)


def gru_after(layer: Layer, at: PrimExpr, row: PrimExpr) -> Stmt:
    """A step whose reset gate multiplies the state."""
    bias, hidden = layer.given[3], layer.hidden
    update, reset = (
        Buffer(name, (hidden,), DType.FLOAT32, MemoryScope.STACK) for name in ("update", "reset")
    )

    def start(gate: int, j: PrimExpr, width: int) -> PrimExpr:
        return layer.gate(at, row, gate, j, width) + items(bias, j + gate * hidden, width)

    def gates(j: PrimExpr, width: int) -> Stmt:
        def epilogue(sums: Sequence[PrimExpr]) -> Stmt:
            old = items(layer.final, row, j, width)
            kept = set_items(reset, j, sigmoid_of(sums[1]) * old)
            return seq(set_items(update, j, sigmoid_of(sums[0])), kept)

        starts = [start(gate, j, width) for gate in range(2)]
        return layer.products(layer.last(row), range(2), j, starts, epilogue)

    def new(j: PrimExpr, width: int) -> Stmt:
        def epilogue(sums: Sequence[PrimExpr]) -> Stmt:
            old, part = items(layer.final, row, j, width), items(update, j, width)

            def put(value: PrimExpr) -> Stmt:
                return layer.put(at, row, j, value + part * (old - value))

            return let(tanh_of(sums[0]), put, "new")

        return layer.products(_reader(reset), (2,), j, [start(2, j, width)], epilogue)

    return allocate((update, reset), seq(layer.over(gates), layer.over(new)))


def layer_loops(
    name: str,
    reverse: bool,
    types: tuple[TensorType, ...],
    kept: tuple[Buffer, ...],
    start: Callable[[Layer, PrimExpr], Stmt] | None,
    step: Callable[[Layer, PrimExpr, PrimExpr], Stmt],
) -> PrimFunc:
    """Return the loops over rows and steps; ``kept`` are the results behind the last state."""
    given = tuple(buffer_of(f"in{number}", type_) for number, type_ in enumerate(types))
    weight = given[3 if len(kept) else 2]
    steps, batch, _ = given[0].shape
    states = Buffer("states", (steps, batch, weight.shape[0]), DType.FLOAT32)
    final = buffer_of("final", types[1])
    layer = Layer(given, weight, states, final)

    def along(row: PrimExpr) -> Stmt:
        def one(number: PrimExpr) -> Stmt:
            def at_step(at: PrimExpr) -> Stmt:
                def keep(j: PrimExpr, width: int) -> Stmt:
                    return set_items(final, row, j, items(states, at, row, j, width))

                return seq(step(layer, at, row), layer.over(keep))

            return let(index(steps) - 1 - number if reverse else number, at_step, "at")

        first = layer.over(
            lambda j, width: set_items(final, row, j, items(given[1], row, j, width))
        )
        more = [] if start is None else [start(layer, row)]
        return seq(first, *more, serial(index(steps), one, "step"))

    whole = along(index(0)) if batch == 1 else parallel(batch, along)
    return PrimFunc(name, (*given, states, final, *kept), 2 + len(kept), whole)


def _blocks(first: int, count: int, width: int, block: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    if count == 1:
        return block(index(first), width)
    return serial(count, lambda number: block(number * width + first, width), "block")


def buffer_of(name: str, type_: TensorType) -> Buffer:
    """Return the buffer of an operand or result."""
    return Buffer(name, extents(type_.shape), type_.dtype)


def items(buffer: Buffer, *place: PrimExpr | int) -> PrimExpr:
    """Read neighbours in the last dimension; the last of ``place`` is how many."""
    *at, width = place
    assert isinstance(width, int)
    return Load(buffer, _place(at, width), buffer.dtype, width)


def set_items(buffer: Buffer, *place: PrimExpr) -> Stmt:
    """Write neighbours in the last dimension; the last of ``place`` is the value."""
    *at, value = place
    return Store(buffer, _place(at, value.lanes), value)


def _place(at: Sequence[PrimExpr | int], width: int) -> tuple[PrimExpr, ...]:
    where = [index(part) for part in at]
    return (*where[:-1], where[-1] if width == 1 else Ramp(where[-1], 1, width))


def _spread(value: PrimExpr, width: int) -> PrimExpr:
    return value if width == 1 else Broadcast(value, width, value.dtype)


def sigmoid_of(x: PrimExpr) -> PrimExpr:
    """The logistic function of elements."""
    return intrinsic(Intrinsic.SIGMOID, x)


def tanh_of(x: PrimExpr) -> PrimExpr:
    """The hyperbolic tangent of elements."""
    return intrinsic(Intrinsic.TANH, x)
