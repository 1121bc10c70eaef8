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

Update: TypeAlias = "Callable[[PrimExpr, PrimExpr, Sequence[PrimExpr]], Stmt]"
"""``update(row, first, sums)``: writes columns of a state, from the sums of its gates."""

Reader: TypeAlias = Callable[[PrimExpr], PrimExpr]
"""Reads an element of a state."""


class Layer(Struct, frozen=True):
    """The buffers of a layer; ``final`` is the state before a step, and after all of them.

    ``depth`` is how many elements of a state its products run over; 0 where all of them are 0.
    ``tile`` says how many sums are in registers, and what multiplies them.
    ``clip`` limits what sigmoid and tanh take of sums, on both sides; 0 is no limit.
    """

    given: tuple[Buffer, ...]
    weight: Buffer
    states: Buffer
    final: Buffer
    width: int
    depth: PrimExpr
    tile: RowTile
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

    def last(self, row: PrimExpr) -> Reader:
        """Read elements of the state of a row before the step."""
        return partial(load, self.final, row)

    def products(
        self,
        states: Sequence[Reader],
        gates: Sequence[int],
        j: PrimExpr,
        starts: Sums,
        epilogue: Callable[[Sums], Stmt],
        apart: int | None = None,
        *,
        by_registers: bool = False,
    ) -> Stmt:
        """Add products of states with columns of the gates to ``starts``, for each state.

        Columns of two gates are ``apart``, as far as the state is wide if not given. The sums of a
        gate are one vector; or ``by_registers``, several that are as wide as registers, one after
        the other in what ``epilogue`` gets.
        """
        width = starts[0][0].lanes
        lanes = min(width, self.tile.lanes) if by_registers else width
        places = [(gate, first) for gate in gates for first in range(0, width, lanes)]
        sums = [
            [
                Buffer(f"sum{gate}", (lanes,), DType.FLOAT32, MemoryScope.REGISTER)
                for gate, _ in places
            ]
            for _ in states
        ]
        current = [[items(buffer, index(0), lanes) for buffer in row] for row in sums]

        def one(k: PrimExpr, factors: Sequence[PrimExpr]) -> Stmt:
            parts: list[Stmt] = []
            for number, (gate, first) in enumerate(places):
                column = TirVar(f"column{gate}", DType.FLOAT32, lanes)
                part = slice(first, first + lanes)
                read = cast(self._column(k, gate, j, part, apart), DType.FLOAT32)
                added = [
                    set_items(row[number], index(0), total[number] + factor * column)
                    for row, total, factor in zip(sums, current, factors, strict=True)
                ]
                parts.append(lets((column,), (read,), seq(*added)))
            return seq(*parts)

        begin = [
            set_items(row[number], index(0), _vector(own[number * lanes // width], first, lanes))
            for row, own in zip(sums, starts, strict=True)
            for number, (_, first) in enumerate(places)
        ]
        body = seq(*begin, self._over_depth(states, lanes, one), epilogue(current))
        return allocate([buffer for row in sums for buffer in row], body)

    @property
    def _is_by_lanes(self) -> bool:
        """Whether products are by lanes of vectors of the states."""
        return self.tile.lane is not None and self.hidden % self.tile.lanes == 0

    def _over_depth(
        self,
        states: Sequence[Reader],
        width: int,
        one: Callable[[PrimExpr, Sequence[PrimExpr]], Stmt],
    ) -> Stmt:
        """Do ``one(k, factors)`` for each element of the states, spread over a vector of columns.

        By lanes, a load brings the elements of several steps: with 4 rows and 4 vectors of a gate,
        4 loads of states and 8 of pairs of vectors go with 64 multiply-adds of NEON.
        """
        lanes, lane = self.tile.lanes, self.tile.lane
        if lane is None or not self._is_by_lanes:
            names = [TirVar(f"state{number}", DType.FLOAT32) for number in range(len(states))]
            factors = [spread(name, width) for name in names]

            def step(k: PrimExpr) -> Stmt:
                return lets(names, [state(k) for state in states], one(k, factors))

            return serial(self.depth, step, "k")

        def steps(number: PrimExpr) -> Stmt:
            parts: list[Stmt] = []
            for n in range(lanes):
                read = [lane(state(number * lanes), n) for state in states]
                factors = [factor for factor in read if factor is not None]
                assert len(factors) == len(read)  # every load of float32 has lanes
                parts.append(one(number * lanes + n, factors))
            return seq(*parts)

        return serial(self.depth // lanes, steps, "k")

    def updates(
        self,
        group: Group,
        gates: Sequence[int],
        j: PrimExpr,
        width: int,
        start: Callable[[PrimExpr, int], PrimExpr],
        one: Update,
        state: Callable[[PrimExpr], Reader] | None = None,
        apart: int | None = None,
    ) -> Stmt:
        """Do ``one`` with the sums of :meth:`products` for each row of a group.

        Of several rows, as many gates at a time are multiplied as registers have room for. Then
        ``one`` is done in a loop over rows, and over columns where functions of all would take more
        registers than there are: functions of gates are most of the code of a step, and would take
        several times as long to compile if written out for each row.

        Each sum is a register: of sums two registers wide, which LLVM divides by itself, GCC 12
        keeps some in memory (4 rows of 256 columns took 860 instead of 480 us for 20 steps).

        Args:
            group: The rows.
            gates: Numbers of the gates.
            j: The first of some columns, of each gate.
            width: How many columns.
            start: ``start(row, gate)``: what products are added to.
            one: What becomes of the sums of a row.
            state: Reads elements of the state of a row; of the one before the step if not given.
            apart: Columns from one gate to the next, as far as the state is wide if not given.
        """
        read, ends = state or self.last, min(width, self.tile.ends)
        is_one = width <= self.tile.lanes or not self._is_by_lanes
        if group.most == 1 and ends == width and is_one:
            return group.tiles(
                lambda rows: self.products(
                    [read(rows[0])],
                    gates,
                    j,
                    [[start(rows[0], gate) for gate in gates]],
                    lambda sums: one(rows[0], j, sums[0]),
                    apart,
                )
            )
        shape = (group.most, len(gates), width)
        kept = Buffer("kept", shape, DType.FLOAT32, MemoryScope.STACK)
        sums = _KeptSums(self, group, gates, j, kept)

        def part(rows: Rows, some: slice) -> Stmt:
            starts = [[start(row, gate) for gate in gates[some]] for row in rows]
            return sums.part(rows, [read(row) for row in rows], some, starts, apart)

        def tile(rows: Rows) -> Stmt:
            return seq(*(part(rows, some) for some in sums.parts(len(rows))))

        return allocate([kept], seq(group.tiles(tile), sums.end(ends, one)))

    def _column(
        self, k: PrimExpr, gate: int, j: PrimExpr, part: slice, apart: int | None
    ) -> PrimExpr:
        """Read columns ``part`` from ``j`` on of a row of the weight, ``[K, gates * hidden]`` or
        packed in blocks, ``[blocks, gates, K, columns]``.
        """
        first, width = part.start, part.stop - part.start
        if len(self.weight.shape) == 2:
            distance = self.hidden if apart is None else apart
            return items(self.weight, k, j + (gate * distance + first), width)
        block = self.weight.shape[3]
        return items(self.weight, j // block, index(gate), k, j % block + first, width)


class _KeptSums(Struct, frozen=True):
    """Sums of several rows between the products and what becomes of them.

    Attributes:
        layer: Has the products.
        group: The rows.
        gates: Numbers of the gates.
        j: The first of some columns, of each gate.
        kept: The sums ``[rows, gates, columns]``.
    """

    layer: Layer
    group: Group
    gates: Sequence[int]
    j: PrimExpr
    kept: Buffer

    def parts(self, rows: int) -> list[slice]:
        """Return which gates of a tile of rows are multiplied together: as many as fit."""
        count, width = len(self.gates), self.kept.shape[2]
        most = max(1, self.layer.tile.sums // (rows * width)) if rows > 1 else count
        together = -(-count // -(-count // most))
        return [slice(n, min(n + together, count)) for n in range(0, count, together)]

    def part(
        self,
        rows: Rows,
        states: Sequence[Reader],
        some: slice,
        starts: Sums,
        apart: int | None,
    ) -> Stmt:
        """Multiply the states of rows with some gates, and keep the sums."""
        width = self.kept.shape[2]
        columns = range(0, width, min(width, self.layer.tile.lanes))
        places = list(product(range(some.start, some.stop), columns))

        def keep(sums: Sums) -> Stmt:
            return seq(
                *(
                    set_items(self.kept, self.group.place(row), index(gate), index(column), total)
                    for row, own in zip(rows, sums, strict=True)
                    for (gate, column), total in zip(places, own, strict=True)
                )
            )

        gates = self.gates[some]
        return self.layer.products(states, gates, self.j, starts, keep, apart, by_registers=True)

    def end(self, ends: int, one: Update) -> Stmt:
        """Do ``one`` with the sums of each row, ``ends`` columns at a time."""
        width = self.kept.shape[2]

        def ended(row: PrimExpr, first: PrimExpr) -> Stmt:
            names = [TirVar(f"total{gate}", DType.FLOAT32, ends) for gate in self.gates]
            place = self.group.place(row)
            values = [items(self.kept, place, n, first, ends) for n in range(len(self.gates))]
            return lets(names, values, one(row, self.j + first, names))

        def each(row: PrimExpr) -> Stmt:
            if ends == width:
                return ended(row, index(0))
            return serial(width // ends, lambda n: ended(row, n * ends), "end")

        return self.group.rows(each)


def layer_loops(
    name: str,
    reverse: bool | PrimExpr,
    types: tuple[TensorType, ...],
    kept: tuple[Buffer, ...],
    start: Callable[[Layer, PrimExpr], Stmt] | None,
    step: Callable[[Layer, PrimExpr, Group], Stmt],
    tile: RowTile,
    clip: float = 0.0,
) -> PrimFunc:
    """Return the loops over rows and steps; ``kept`` are the results behind the last state.

    ``reverse``: from the last step to the first; a variable that is 0 or 1 where the run says it.
    """
    given = tuple(buffer_of(f"in{number}", type_) for number, type_ in enumerate(types))
    weight = given[3 if len(kept) else 2]
    steps, batch, _ = given[0].shape
    final = buffer_of("final", types[1])
    states = Buffer("states", (steps, batch, final.shape[1]), DType.FLOAT32)
    width, hidden = tile.width, index(final.shape[1])
    layer = Layer(given, weight, states, final, width, hidden, tile, clip)

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
                at = _step_number(index(steps), number, reverse)
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


def _step_number(steps: PrimExpr, number: PrimExpr, reverse: bool | PrimExpr) -> PrimExpr:
    """Return which step of the sequence is taken as a given one."""
    last = steps - 1 - number
    if isinstance(reverse, PrimExpr):
        return select(equal(reverse, 1), last, number)
    return last if reverse else number


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


def flushed(x: PrimExpr) -> PrimExpr:
    """Elements; 0 where they are below 2**-96, which is nothing beside the gates of a layer.

    A closed gate (a sigmoid of -80) leaves states that become subnormal numbers within a few steps.
    Each vector of products with such a state would take some 150 cycles of microcode. Products of
    larger states and weights down to 1e-9 are normal numbers.
    """
    return select(intrinsic(Intrinsic.ABS, x) < 2.0**-96, 0.0, x)
