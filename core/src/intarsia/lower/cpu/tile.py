# SPDX-License-Identifier: Apache-2.0
"""The register tile that every product of matrices is made of.

``rows`` results of ``width`` neighbouring columns each are summed up in registers: for each step of
the inner loops one element a row is broadcast and multiplied with ``width`` packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...dtype import DType
from ...target.kind import Memory
from ...tir.buffer import Buffer, Scope
from ...tir.expr import Load, PrimExpr, TirVar, const, index
from ...tir.stmt import Allocate, Stmt
from ...tir.walk import expr_nodes, statements, substitute
from .ahead import Ahead, Prefetch, fetching
from .loops import load, seq, serial, store, unrolled, vectorized
from .matrix_unit import MatrixUnit


class SumUp(Protocol):
    """A backend's procedure for the inner loop of a tile."""

    def __call__(
        self,
        sums: Buffer,
        left: Sequence[PrimExpr],
        right: PrimExpr,
        quads: PrimExpr | int,
        *,
        signed: bool,
    ) -> Stmt:
        """Return the statement; see :class:`Quads`."""
        ...


class Taps(Struct, frozen=True):
    """The taps of a window within a channel that are inside the picture, and where they lie.

    Attributes:
        data: The load of the first tap's element, of the first channel.
        weight: The load of its weight.
        rows: How many rows of taps there are; none if it is not positive.
        columns: Taps in a row.
        data_steps: Elements from a row of taps to the next one, and from a tap to its neighbour.
        weight_steps: The same of the weights.
        zero: What is subtracted from each element of data.
    """

    data: PrimExpr
    weight: PrimExpr
    rows: PrimExpr
    columns: int
    data_steps: tuple[int, int]
    weight_steps: tuple[int, int]
    zero: int


class ChannelSums(Struct, frozen=True):
    """A backend's procedure for windows of bytes that stay within a channel.

    Attributes:
        sum_up: ``sum_up(sums, taps)``: a statement that writes the sum of the products of each
            channel to ``sums[0, channel]``; element and weight of a channel lie behind those of the
            one before.
        channels: How many channels it is best called for.
    """

    sum_up: Callable[[Buffer, Taps], Stmt]
    channels: int


class Quads(Struct, frozen=True):
    """How a backend works on four neighbouring bytes as one 32-bit integer.

    Attributes:
        load: ``load(first)``: the integer at the place of ``first``, a load of a byte.
        add: ``add(total, left, right)``: ``total`` and four products, of the unsigned bytes of
            ``left`` and the signed ones of ``right``.
        least_rows: Products of fewer rows are left to default loops.
        sum_up: ``sum_up(sums, left, right, quads, signed=...)``: a statement that adds to the sums
            of a tile what a whole row of quads gives, from the first quad of each row of data and
            of the weights on; ``None`` if tiles have loops over quads.
        columns: Most columns of weights that are packed together; as many as of float32 if 0.
        within: How windows within a channel are summed up; ``None`` if by loops.
        unit: A unit that multiplies matrices of bytes; ``None`` if the machine has none.
    """

    load: Callable[[PrimExpr], PrimExpr]
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    least_rows: int = 1
    sum_up: SumUp | None = None
    columns: int = 0
    within: ChannelSums | None = None
    unit: MatrixUnit | None = None


class Pairs(Struct, frozen=True):
    """How a backend works on two neighbouring bfloat16 as one 32-bit integer.

    Attributes:
        load: ``load(first)``: the integer at the place of ``first``, a load of a bfloat16.
        unit: The unit that multiplies matrices of them.
    """

    load: Callable[[PrimExpr], PrimExpr]
    unit: MatrixUnit


_BUSY = 8  # sums of vectors that are added up at once: two units, four cycles each


class Shape(Struct, frozen=True):
    """How large register tiles are on a machine.

    Attributes:
        lanes: Elements in a vector.
        rows: Rows of a tile two vectors wide.
        strip_bytes: Most memory that a padded copy of some rows of a picture may take.
        prefetch: ``prefetch(element, body)`` is ``body`` while the cache line of ``element``, a
            load, is fetched; ``None`` if the machine does so by itself or has no cache.
        quads: How products of bytes are summed up; ``None`` leaves them to default loops.
        pairs: How float32 may be multiplied in bfloat16; ``None`` if it may or can not.
        add: ``add(total, left, right)``: what a step of a tile does if it does not multiply and
            add.
        sum_up: ``sum_up(sums, left, right, steps)``: what a tile does in place of its inner loop.
        unit: The matrix unit that multiplies; ``None`` if vectors do.
        tile_columns: Neighbours in a row of a picture that one tile computes; 0 lets a rule choose.
        panel_bytes: Most memory of the rows that share one pass over a block of weights.
        copies_rows: Whether these rows are copied side by side first; ``None`` lets a rule choose.
        neighbours: Results in a row that windows within a channel compute at a time.
        every_second: ``every_second(a, b, first)``: of two vectors side by side, the elements
            ``first``, ``first + 2`` and so on, as many as one has; ``None`` if loads that skip
            elements are as good.
        turn: ``turn(rows, write)`` transposes a square of vectors, one a row, and has ``write(i,
            column)`` store column ``i``; ``None`` if the machine cannot do so in registers.
    """

    lanes: int
    rows: int
    strip_bytes: int = 224 * 1024
    prefetch: Prefetch | None = None
    quads: Quads | None = None
    pairs: Pairs | None = None
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    sum_up: Callable[[Buffer, Sequence[PrimExpr], PrimExpr, PrimExpr | int], Stmt] | None = None
    unit: MatrixUnit | None = None
    tile_columns: int = 0
    panel_bytes: int = 192 * 1024
    copies_rows: bool | None = None
    neighbours: int = 8
    every_second: Callable[[PrimExpr, PrimExpr, int], PrimExpr] | None = None
    turn: Callable[[Sequence[PrimExpr], Callable[[int, PrimExpr], Stmt]], Stmt] | None = None

    def rows_for(self, vectors: int) -> int:
        """Return the rows of a tile ``vectors`` wide.

        Its sums, its weights and what a row is multiplied with fill the registers.
        """
        if vectors <= 2:
            return self.rows if vectors == 2 else 2 * self.rows
        return max(1, (2 * self.rows + 3 - vectors) // vectors)


def fit_caches(shape: Shape, memory: Sequence[Memory]) -> Shape:
    """Return a shape whose strips and panels stay in the second-level cache of a core.

    Strips take 7/8 of it at most, panels 3/4, and weights what is left: the shares that the usual
    sizes have of 256 KiB. A larger cache does not make them larger.

    Args:
        shape: Of a machine with any cache.
        memory: Levels of memory of the device; those of the kind's own have no caches.
    """
    cache = next((level for level in memory if level.name == "l2" and level.size), None)
    if cache is None:
        return shape
    share = cache.size // cache.shared_by
    return replace(
        shape,
        strip_bytes=min(shape.strip_bytes, share * 7 // 8),
        panel_bytes=min(shape.panel_bytes, share * 3 // 4),
    )


def best_rows(extent: int, limit: int) -> int:
    """Return how many rows a tile should have so that ``extent`` rows cost least.

    A tile of few rows waits for its sums; a remainder is one more tile.
    """
    limit = max(1, min(limit, extent))

    def cost(rows: int) -> float:
        whole, rest = divmod(extent, rows)
        return whole * _tile_cost(rows) + (_tile_cost(rest) if rest else 0.0)

    return min(range(limit, 0, -1), key=cost)


def _tile_cost(rows: int) -> float:
    return max(float(rows), 4.0) + 0.5


def block_width(outputs: int, shape: Shape) -> int:
    """Return how many output columns are packed together: one or two vectors."""
    return shape.lanes if outputs <= shape.lanes else 2 * shape.lanes


def quad_width(outputs: int, shape: Shape) -> int:
    """Return how many output columns of bytes are packed together."""
    if shape.quads is None or not shape.quads.columns:
        return block_width(outputs, shape)
    return min(outputs, shape.quads.columns)


def column_parts(outputs: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """Return ``(first block, blocks, used columns)``: whole blocks, and a last one not full."""
    whole, rest = divmod(outputs, width)
    parts = [(0, whole, width)] if whole else []
    if rest:
        parts.append((whole, 1, rest))
    return tuple(parts)


def register_tile(
    shape: Shape,
    *,
    rows: int,
    columns: int,
    largest: tuple[int, int],
    steps: Sequence[int | PrimExpr],
    left: Callable[[int | PrimExpr, Sequence[PrimExpr]], PrimExpr],
    right: Callable[[Sequence[PrimExpr], PrimExpr], PrimExpr],
    finish: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    dtype: DType = DType.FLOAT32,
    ahead: Ahead | None = None,
    begin: Callable[[PrimExpr, PrimExpr], PrimExpr] | None = None,
) -> Stmt:
    """Return the loops of one tile.

    Args:
        shape: Tile of the machine.
        rows: Rows of this tile.
        columns: Columns of it that exist; the rest of the last vector is computed, not stored.
        largest: Rows and columns of the largest tile of the kernel: all add up in the same order,
            so that equal rows, and equal columns, have equal results.
        steps: Extents of the loops to sum over, outermost first.
        left: ``left(row, step)``: the element to broadcast.
        right: ``right(step, column)``: the packed weight.
        finish: ``finish(row, column, sum)``: what to do with a result.
        dtype: Element type.
        ahead: What to fetch into the cache meanwhile.
        begin: ``begin(row, column)``: what a sum starts from; zero if ``None``.
    """
    lanes = shape.lanes
    vectors = -(-columns // lanes)
    parts, extents = _partial_sums(shape, largest, steps) if begin is None else (1, steps)
    acc = Buffer("acc", (parts * rows, vectors * lanes), dtype, Scope.REGISTER)

    def nest(done: tuple[PrimExpr, ...]) -> Stmt:
        if shape.sum_up is not None and len(done) == len(steps) - 1:
            first = (*done, index(0))
            rows_of_data = [left(row, first) for row in range(rows)]
            return shape.sum_up(acc, rows_of_data, right(first, index(0)), steps[-1])
        if len(done) < len(steps):
            return serial(extents[len(done)], lambda k: nest((*done, k)), "k")

        def add(number: PrimExpr, column: PrimExpr) -> Stmt:
            row, step = _part(number, done, rows, parts)
            total, a, b = load(acc, number, column), left(row, step), right(step, column)
            added = total + a * b if shape.add is None else shape.add(total, a, b)
            return store(acc, (number, column), added)

        body = _each(acc, lanes, add)
        return body if ahead is None else ahead.around(body, done, extents, (rows, lanes))

    zero = const(0, dtype)
    clear = _each(
        acc, lanes, lambda r, c: store(acc, (r, c), zero if begin is None else begin(r, c))
    )
    done = unrolled(rows, lambda r: _write_row(acc, (r, rows), columns, lanes, finish), "r")
    places = _places(finish, rows, columns, lanes, dtype)
    return Allocate(acc, fetching(shape.prefetch, places, seq(clear, nest(()), done)))


_FAR_BYTES = 64 * 1024  # what is larger has gone from the first cache when a tile comes to it


def _places(
    finish: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
    rows: int,
    columns: int,
    lanes: int,
    dtype: DType,
) -> Iterator[PrimExpr]:
    """Yield what is read of large arrays to finish a tile."""
    row, column = TirVar("r"), TirVar("v")
    ends = statements(finish(row, column, const(0, dtype)))
    far = [n for n in expr_nodes(ends) if isinstance(n, Load) and n.buffer.bytes >= _FAR_BYTES]
    for r in range(rows if far else 0):
        for first in range(0, columns, lanes):
            for read in far:
                yield substitute(read, {row: index(r), column: index(first)})


def _each(acc: Buffer, lanes: int, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
    """Do ``body(row, column)`` for all sums of a tile, a vector at a time."""
    rows, columns = acc.shape

    def row(r: PrimExpr) -> Stmt:
        return unrolled(
            columns // lanes, lambda v: vectorized(lanes, lambda i: body(r, v * lanes + i)), "v"
        )

    return unrolled(rows, row, "r")


def _partial_sums(
    shape: Shape, largest: tuple[int, int], steps: Sequence[int | PrimExpr]
) -> tuple[int, Sequence[int | PrimExpr]]:
    """Return how many sums a result has, so that a machine need not wait for one to be added.

    The other value is ``steps`` where each inner step adds to all of them.
    """
    rows, vectors = largest[0], -(-largest[1] // shape.lanes)
    parts, last = 1, steps[-1]
    if not isinstance(last, int) or shape.sum_up is not None:
        return parts, steps
    while (
        last % (2 * parts) == 0
        and 2 * parts * rows <= shape.rows_for(vectors)
        and parts * rows * vectors < _BUSY
    ):
        parts *= 2
    return parts, (*steps[:-1], last // parts)


def _part(
    number: PrimExpr, done: tuple[PrimExpr, ...], rows: int, parts: int
) -> tuple[PrimExpr, tuple[PrimExpr, ...]]:
    """Return the row and the step that partial sum ``number`` is of."""
    if parts == 1:
        return number, done
    return number % rows, (*done[:-1], done[-1] * parts + number // rows)


def _write_row(
    acc: Buffer,
    place: tuple[PrimExpr, int],
    columns: int,
    lanes: int,
    finish: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """Hand on the sums of a row, vector by vector, without those behind the last column."""
    row, rows = place
    stmts: list[Stmt] = []

    def total(column: PrimExpr) -> PrimExpr:
        value = load(acc, row, column)
        for first in range(rows, acc.shape[0], rows):
            value = value + load(acc, row + first, column)
        return value

    for start in range(0, columns, lanes):
        used = min(lanes, columns - start)
        stmts.append(vectorized(used, lambda i, s=start: finish(row, i + s, total(i + s))))
    return seq(*stmts)
