# SPDX-License-Identifier: Apache-2.0
"""Loops of recurrent layers: rows in parallel, steps in order, sums of the gates in registers.

Rows of a batch may go along the sequence together, as many as a tile of the machine has: each
vector of the weight is then read once for all of them, and sums of several rows hide the latency of
a multiply-add that those of one wait for. With 4 rows and 4 gates 16 accumulators, 4 vectors of the
weight and 1 broadcast element of a state take 21 of 32 zmm; with 4 rows and one gate, two vectors
wide, 8 + 2 + 1 = 11 of 16 ymm.

Most layers begin with a state of zeros. Then the first step has no product to compute: a third of
the time of three steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_runtime.dtype import DType

from ..graph.types import TensorType
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, let, lets, load, seq, serial
from ..tir.expr import (
    BinaryOp,
    Broadcast,
    FloatImm,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    TirVar,
    cast,
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
from ..tir.walk import rewrite
from .recurrent_rows import Group, Rows, RowTile, over_rows

_WIDTHS = (32, 16, 8, 4, 2, 1)
"""Columns of each gate whose sums are in registers together, the widest first."""

Sums: TypeAlias = "Sequence[Sequence[PrimExpr]]"
"""For each row, values of each gate."""

Reader: TypeAlias = Callable[[PrimExpr], PrimExpr]
"""Reads an element of a state."""


class Layer(Struct, frozen=True):
    """The buffers of a layer; ``final`` is the state before a step, and after all of them.

    ``depth`` is how many elements of a state its products run over; 0 where all of them are 0.
    ``sums`` is how many sums of a tile of several rows are in registers, in vectors of ``lanes``.
    ``clip`` limits what sigmoid and tanh take of sums, on both sides; 0 is no limit.
    """

    given: tuple[Buffer, ...]
    weight: Buffer
    states: Buffer
    final: Buffer
    width: int
    depth: PrimExpr
    sums: int
    lanes: int
    clip: float = 0.0

    def limited(self, x: PrimExpr) -> PrimExpr:
        """Elements within ``clip`` on both sides; NaN stays NaN."""
        return minimum(maximum(x, -self.clip), self.clip) if self.clip else x

    @property
    def hidden(self) -> int:
        """Number of columns of the state."""
        return self.final.shape[1]

    def over(self, block: Callable[[PrimExpr, int], Stmt]) -> Stmt:
        """Do ``block(first, width)`` for all columns of the state."""
        parts: list[Stmt] = []
        done = 0
        for width in (width for width in _WIDTHS if width <= self.width):
            count = (self.hidden - done) // width
            if count:
                parts.append(blocks(done, count, width, block))
            done += count * width
        return seq(*parts)

    def over_tiles(self, group: Group, block: Callable[[Rows, PrimExpr, int], Stmt]) -> Stmt:
        """Do ``block(rows, first, width)`` for all columns of the state and each tile of rows."""
        return self.over(lambda j, width: group.tiles(lambda rows: block(rows, j, width)))

    def over_vectors(self, total: int, columns: Callable[[PrimExpr, int, int], Stmt]) -> Stmt:
        """Do ``columns(first, width, count)`` for ``total`` columns, ``count`` vectors at a time:
        four together while there are so many, then one, then narrower ones.
        """
        parts: list[Stmt] = []
        done = 0
        widths = [width for width in _WIDTHS if width <= self.width]
        for width, count in ((widths[0], 4), *((width, 1) for width in widths)):
            number = (total - done) // (width * count)
            if number:

                def block(j: PrimExpr, _all: int, width: int = width, count: int = count) -> Stmt:
                    return columns(j, width, count)

                parts.append(blocks(done, number, width * count, block))
            done += number * width * count
        return seq(*parts)

    def gate(self, at: PrimExpr, row: PrimExpr, gate: int, j: PrimExpr, width: int) -> PrimExpr:
        """The inputs' part of columns of a gate."""
        return items(self.given[0], at, row, j + gate * self.hidden, width)

    def put(self, at: PrimExpr, row: PrimExpr, j: PrimExpr, value: PrimExpr) -> Stmt:
        """Write columns of the state after a step."""
        return set_items(self.states, at, row, j, value)

    def last(self, rows: Rows) -> list[Reader]:
        """Read elements of the states before the step."""
        return [partial(load, self.final, row) for row in rows]

    def products(
        self,
        states: Sequence[Reader],
        gates: Sequence[int],
        j: PrimExpr,
        starts: Sums,
        epilogue: Callable[[Sums], Stmt],
        apart: int | None = None,
        lanes: int | None = None,
    ) -> Stmt:
        """Add products of states with columns of the gates to ``starts``, for each state.

        Columns of two gates are ``apart``, as far as the state is wide if not given. The sums of a
        gate are one vector, or several of ``lanes``, one after the other in what ``epilogue`` gets.
        """
        width = starts[0][0].lanes
        lanes = width if lanes is None else min(lanes, width)
        places = [(gate, first) for gate in gates for first in range(0, width, lanes)]
        sums = [
            [
                Buffer(f"sum{gate}", (lanes,), DType.FLOAT32, MemoryScope.REGISTER)
                for gate, _ in places
            ]
            for _ in states
        ]
        current = [[items(buffer, index(0), lanes) for buffer in row] for row in sums]
        names = [TirVar(f"state{number}", DType.FLOAT32) for number in range(len(states))]

        def one(k: PrimExpr) -> Stmt:
            parts: list[Stmt] = []
            for number, (gate, first) in enumerate(places):
                column = TirVar(f"column{gate}", DType.FLOAT32, lanes)
                read = cast(self._column(k, gate, j + first, lanes, apart), DType.FLOAT32)
                added = [
                    set_items(row[number], index(0), total[number] + spread(state, lanes) * column)
                    for row, total, state in zip(sums, current, names, strict=True)
                ]
                parts.append(lets((column,), (read,), seq(*added)))
            return lets(names, [state(k) for state in states], seq(*parts))

        begin = [
            set_items(row[number], index(0), _vector(own[number * lanes // width], first, lanes))
            for row, own in zip(sums, starts, strict=True)
            for number, (_, first) in enumerate(places)
        ]
        body = seq(*begin, serial(self.depth, one, "k"), epilogue(current))
        return allocate([buffer for row in sums for buffer in row], body)

    def updates(
        self,
        rows: Rows,
        states: Sequence[Reader],
        gates: Sequence[int],
        j: PrimExpr,
        starts: Sums,
        one: Callable[[PrimExpr, Sequence[PrimExpr]], Stmt],
        apart: int | None = None,
    ) -> Stmt:
        """Do ``one(row, sums)`` with the sums of :meth:`products` for each row.

        Of several rows, which are neighbours, as many gates at a time are multiplied as registers
        have room for. Then ``one`` is done in a loop: functions of gates are most of the code of a
        step, and would take several times as long to compile if written out for each row.

        Each sum is a register: of sums two registers wide, which LLVM divides by itself, GCC 12
        keeps some in memory (4 rows of 256 columns took 860 instead of 480 us for 20 steps).
        """
        if len(rows) == 1:
            return self.products(
                states, gates, j, starts, lambda sums: one(rows[0], sums[0]), apart
            )
        width = starts[0][0].lanes
        shape = (len(rows), len(gates), width)
        kept = Buffer("kept", shape, DType.FLOAT32, MemoryScope.STACK)

        def part(first: int, last: int) -> Stmt:
            def keep(sums: Sums) -> Stmt:
                return seq(
                    *(
                        set_items(kept, index(row), index(gate), index(column), total)
                        for row, own in enumerate(sums)
                        for (gate, column), total in zip(places, own, strict=True)
                    )
                )

            places = list(product(range(first, last), range(0, width, min(width, self.lanes))))
            own = [start[first:last] for start in starts]
            return self.products(states, gates[first:last], j, own, keep, apart, self.lanes)

        def row(number: PrimExpr) -> Stmt:
            names = [TirVar(f"total{gate}", DType.FLOAT32, width) for gate in gates]
            values = [items(kept, number, gate, index(0), width) for gate in range(len(gates))]
            return lets(names, values, one(rows[0] + number, names))

        parts = -(-len(gates) // max(1, self.sums // (len(rows) * width)))
        together = -(-len(gates) // parts)
        firsts = range(0, len(gates), together)
        sums = [part(first, min(first + together, len(gates))) for first in firsts]
        return allocate([kept], seq(*sums, serial(len(rows), row, "row")))

    def _column(
        self, k: PrimExpr, gate: int, j: PrimExpr, width: int, apart: int | None
    ) -> PrimExpr:
        """Read columns of a row of the weight, ``[K, gates * hidden]`` or packed in blocks,
        ``[blocks, gates, K, columns]``.
        """
        if len(self.weight.shape) == 2:
            distance = self.hidden if apart is None else apart
            return items(self.weight, k, j + gate * distance, width)
        block = self.weight.shape[3]
        return items(self.weight, j // block, index(gate), k, j % block, width)


def readers(buffer: Buffer, rows: Rows) -> list[Reader]:
    """Read elements of the rows of a buffer that has one for each of ``rows``."""
    return [partial(load, buffer, index(number)) for number in range(len(rows))]


def gru_before(layer: Layer, at: PrimExpr, group: Group) -> Stmt:
    """A step whose reset gate multiplies the product with the state."""
    bias, hidden = layer.given[3], layer.hidden

    def block(rows: Rows, j: PrimExpr, width: int) -> Stmt:
        own = [items(bias, j + gate * hidden, width) for gate in range(3)]
        starts = [
            [*(layer.gate(at, row, gate, j, width) + own[gate] for gate in range(2)), own[2]]
            for row in rows
        ]

        def one(row: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            reset = sigmoid_of(layer.limited(sums[1]))
            inner = layer.limited(layer.gate(at, row, 2, j, width) + reset * sums[2])
            old = items(layer.final, row, j, width)

            def put(new: PrimExpr) -> Stmt:
                update = sigmoid_of(layer.limited(sums[0]))
                return layer.put(at, row, j, new + update * (old - new))

            return let(tanh_of(inner), put, "new")

        return layer.updates(rows, layer.last(rows), range(3), j, starts, one)

    return layer.over_tiles(group, block)


def gru_after(layer: Layer, at: PrimExpr, group: Group) -> Stmt:
    """A step whose reset gate multiplies the state."""
    bias, hidden = layer.given[3], layer.hidden
    update, reset = (
        Buffer(name, (group.most, hidden), DType.FLOAT32, MemoryScope.STACK)
        for name in ("update", "reset")
    )

    def start(row: PrimExpr, gate: int, j: PrimExpr, width: int) -> PrimExpr:
        return layer.gate(at, row, gate, j, width) + items(bias, j + gate * hidden, width)

    def gates(rows: Rows, j: PrimExpr, width: int) -> Stmt:
        def one(row: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            old = items(layer.final, row, j, width)
            z, r = (sigmoid_of(layer.limited(total)) for total in sums)
            kept = set_items(reset, row - group.first, j, r * old)
            return seq(set_items(update, row - group.first, j, z), kept)

        starts = [[start(row, gate, j, width) for gate in range(2)] for row in rows]
        return layer.updates(rows, layer.last(rows), range(2), j, starts, one)

    def new(rows: Rows, j: PrimExpr, width: int) -> Stmt:
        def one(row: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            old, part = (
                items(layer.final, row, j, width),
                items(update, row - group.first, j, width),
            )

            def put(value: PrimExpr) -> Stmt:
                return layer.put(at, row, j, value + part * (old - value))

            return let(tanh_of(layer.limited(sums[0])), put, "new")

        starts = [[start(row, 2, j, width)] for row in rows]
        states = [partial(load, reset, row - group.first) for row in rows]
        return layer.updates(rows, states, (2,), j, starts, one)

    return allocate(
        (update, reset), seq(layer.over_tiles(group, gates), layer.over_tiles(group, new))
    )


def layer_loops(
    name: str,
    reverse: bool,
    types: tuple[TensorType, ...],
    kept: tuple[Buffer, ...],
    start: Callable[[Layer, PrimExpr], Stmt] | None,
    step: Callable[[Layer, PrimExpr, Group], Stmt],
    tile: RowTile,
    clip: float = 0.0,
) -> PrimFunc:
    """Return the loops over rows and steps; ``kept`` are the results behind the last state."""
    given = tuple(buffer_of(f"in{number}", type_) for number, type_ in enumerate(types))
    weight = given[3 if len(kept) else 2]
    steps, batch, _ = given[0].shape
    final = buffer_of("final", types[1])
    states = Buffer("states", (steps, batch, final.shape[1]), DType.FLOAT32)
    width, hidden = tile.width, index(final.shape[1])
    layer = Layer(given, weight, states, final, width, hidden, tile.sums, tile.lanes, clip)

    def along(group: Group, layer: Layer) -> Stmt:
        size, zero = Buffer("size", (1,), DType.FLOAT32, MemoryScope.REGISTER), FloatImm(0.0)

        def first(row: PrimExpr) -> Stmt:
            def copied(j: PrimExpr, width: int) -> Stmt:
                state = items(given[1], row, j, width)
                total = load(size, 0) + _sum_of(intrinsic(Intrinsic.ABS, state))
                return seq(set_items(final, row, j, state), set_items(size, index(0), total))

            return layer.over(copied)

        def steps_from(begun: PrimExpr) -> Stmt:
            def one(number: PrimExpr) -> Stmt:
                depth = select(equal(number, 0), begun, hidden)
                at = index(steps) - 1 - number if reverse else number
                names = TirVar("depth"), TirVar("at")
                own = replace(layer, depth=names[0])

                def copied(row: PrimExpr, j: PrimExpr, width: int) -> Stmt:
                    return set_items(final, row, j, items(states, names[1], row, j, width))

                copies = layer.over(lambda j, width: group.rows(lambda row: copied(row, j, width)))
                return lets(names, (depth, at), seq(step(own, names[1], group), copies))

            return serial(index(steps), one, "step")

        more = [] if start is None else [group.rows(partial(start, layer))]
        # NaN is no zero: it stays in the sum.
        begun = select(equal(load(size, 0), zero), index(0), hidden)
        go = let(begun, steps_from, "begun")
        body = seq(set_items(size, index(0), zero), group.rows(first), *more, go)
        return allocate((size,), body)

    whole = over_rows(
        batch, tile, weight, lambda group, width: along(group, replace(layer, width=width))
    )
    return PrimFunc(name, (*given, states, final, *kept), 2 + len(kept), whole)


def blocks(first: int, count: int, width: int, block: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    """Do ``block(column, width)`` for ``count`` pieces of columns from ``first`` on."""
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


def _vector(value: PrimExpr, first: int, lanes: int) -> PrimExpr:
    """Return ``lanes`` elements of a vector of sums, loads and broadcasts, from ``first`` on."""

    def part(node: PrimExpr) -> PrimExpr | None:
        match node:
            case Ramp():
                return Ramp(node.base + first * node.stride, node.stride, lanes)
            case Broadcast():
                return Broadcast(node.value, lanes, node.dtype)
            case _:
                return None

    return value if value.lanes == lanes else rewrite(value, part)


def _sum_of(value: PrimExpr) -> PrimExpr:
    """The sum of the lanes of a vector."""
    return value if value.lanes == 1 else ReduceLanes(BinaryOp.ADD, value, value.dtype)


def spread(value: PrimExpr, width: int) -> PrimExpr:
    """A vector whose elements are all one scalar; the scalar itself where the width is 1."""
    return value if width == 1 else Broadcast(value, width, value.dtype)


def sigmoid_of(x: PrimExpr) -> PrimExpr:
    """The logistic function of elements."""
    return intrinsic(Intrinsic.SIGMOID, x)


def tanh_of(x: PrimExpr) -> PrimExpr:
    """The hyperbolic tangent of elements."""
    return intrinsic(Intrinsic.TANH, x)
