# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax along the last dimension: three passes over a row in the cache.

Maximum, then ``exp(x - max)`` and its sum, then the scaling. Each pass is a reduction that waits
for its own accumulator, so four accumulators run at once: four rows of up to three vectors, two
of up to eleven, or four vectors of one longer row. Long rows one by one are one stream of reads and
one of writes, and their maxima need no registers of their own. The second pass stores the
exponentials, at most 16 KiB (half of a first-level cache of 32 KiB), so that they are computed
once; those of rows from 1 KiB on lie in the result (8 x 1024 rows of 1024: 0.66 of the time with
AVX2, 0.79 with AVX-512, both on AMD Zen 4, of which 0.85 and 0.95 are the exponential's). Rows
shorter than two vectors are the lanes of a vector, a vector of rows at a time.

Registers: 4 maxima and an item; then 2 sums, 2 exponentials of 4 registers each, and 5 of the 10
constants: 15 of 16. The three-pass algorithm with stored exponentials is that of Dukhan and
Ablavatski, "Two-pass softmax algorithm" (2020), which compares it; its two-pass form gains only
where rows leave the cache.

The maximum ignores NaN: a row that has one has it in its sum, too, and so everywhere in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.qnn import Lookup
from intarsia_ir.ops.softmax import LogSoftmax, SoftmaxOp
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    TirVar,
    const,
    index,
    intrinsic,
    minimum,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt, Store
from intarsia_ir.tir.tensor import lowest
from intarsia_runtime.size import Dim

from ..typical import extents, is_open
from .exponential import softmax_exp
from .group import operands
from .loops import EpilogueStore, load, parallel, seq, serial, store, unflatten

_ACCUMULATORS = 4
"""Vectors that run side by side."""

_POWERS = 2
"""Vectors of exponentials side by side, where more would spill 16 registers: those of a few steps
are under way at once."""

_SHORT, _LONG = 4, 12
"""Vectors from which on rows run in twos, and one by one."""

_ROWS_BYTES = 16 * 1024
"""Most memory of the exponentials that rows side by side keep."""

_DIRECT_BYTES = 1024
"""Rows of so many bytes keep their exponentials where the result will be: the cache lines of the
result arrive while exponentials are computed, and the last pass does not wait for them. (12 x 384
rows of 384 that no cache holds: 0.86 of the time with AVX-512, Zen 4; 197, whose rows begin at no
vector, 1.05.)"""


def softmax_kernel(group: FusedGroup, lanes: int) -> PrimFunc | None:
    """Return the kernel of a softmax along the last dimension that is not 1.

    Args:
        group: The fused group.
        lanes: Elements of a vector of the machine.
    """
    anchor = operands(group)
    call = group.anchor
    if anchor is None or call is None or not isinstance(call.attrs, SoftmaxOp.Attrs):
        return None
    kind = tensor_type(call.args[0])
    if is_open(kind):
        return _open_kernel(group, call.attrs.axis, lanes, logarithm=call.op is LogSoftmax)
    shape, axis = kind.static_shape, call.attrs.axis
    size, rows = shape[axis], prod(shape[:axis])
    if prod(shape[axis + 1 :]) != 1 or not kind.dtype.is_float or kind.dtype.bits < 32:
        return None
    lanes = lanes * 4 // kind.dtype.bytes
    alone = group.function.body is call
    fits = alone or size * kind.dtype.bytes <= _ROWS_BYTES
    flat = size < 2 * lanes and size != lanes and rows >= lanes and alone
    if lanes < 2 or not fits or not (flat or size >= lanes):
        return None
    logarithm = call.op is LogSoftmax
    if not alone:
        # A table is read at places that are computed: there are no vectors of such loads.
        looks_up = any(node.op is Lookup for node in calls(group.function))
        if axis < len(shape) - 1 or looks_up:
            return None
        work = _Softmax(anchor.args[0], anchor.epilogue, lanes, logarithm)
        return anchor.function(_row_group_loops(work, rows, size, None))
    whole = (rows * size,) if flat else (rows, size)
    data, result = (Buffer(name, whole, kind.dtype) for name in ("x", "out"))

    def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...]) -> Stmt:
        return Store(result, indices, value)

    work = _Softmax(data, epilogue, lanes, logarithm)
    body = _by_lanes(work, rows, size) if flat else _row_group_loops(work, rows, size, result)
    return PrimFunc(group.name, (data, result), 1, body)


def _open_kernel(group: FusedGroup, axis: int, lanes: int, *, logarithm: bool) -> PrimFunc | None:
    """Return the kernel of rows of an open number or size: one row at a time, four vectors of it.

    Powers lie where the results will: no stack holds a row of open size.
    """
    call = group.function.body
    if call is not group.anchor:
        return None
    kind = tensor_type(group.function.params[0])
    shape = extents(kind)
    size, rows = shape[axis], prod(shape[:axis])
    suits = prod(shape[axis + 1 :]) == 1 and kind.dtype.is_float and kind.dtype.bits >= 32
    if (
        not suits
        or lanes < 2
        or (not isinstance(size, Dim) and size < lanes * 4 // kind.dtype.bytes)
    ):
        return None
    lanes = lanes * 4 // kind.dtype.bytes
    data, result = (Buffer(name, (rows, size), kind.dtype) for name in ("x", "out"))

    def epilogue(value: PrimExpr, indices: tuple[PrimExpr, ...]) -> Stmt:
        return Store(result, indices, value)

    work = _Softmax(data, epilogue, lanes, logarithm)

    def row(p: PrimExpr) -> Stmt:
        return _rows(_RowGroup(work, p, 1, _ACCUMULATORS, result, p, size))

    body = parallel(index(rows), row)
    if isinstance(size, Dim):
        few = minimum(index(size), lanes - 1)  # which says that there is nothing to vectorize
        short = parallel(index(rows), lambda p: _short_row(work, result, p, few))
        body = IfStmt(index(size) >= lanes, body, short)
    return PrimFunc(group.name, (data, result), 1, body)


def _short_row(work: _Softmax, result: Buffer, row: PrimExpr, size: PrimExpr) -> Stmt:
    """Compute a row that fills no vector, element by element."""
    dtype = work.data.dtype
    most, total = (Buffer(name, (1,), dtype, MemoryScope.REGISTER) for name in ("most", "total"))

    def take(k: PrimExpr) -> Stmt:
        item = TirVar("item", dtype)
        larger = store(most, (0,), _larger(item, load(most, 0)))
        return LetStmt(item, load(work.data, row, k), larger)

    def grow(k: PrimExpr) -> Stmt:
        less, grown = TirVar("less", dtype), TirVar("grown", dtype)
        kept = store(result, (row, k), less if work.logarithm else grown)
        added = seq(kept, store(total, (0,), load(total, 0) + grown))
        power = LetStmt(grown, softmax_exp(less), added)
        return LetStmt(less, load(work.data, row, k) - load(most, 0), power)

    share = TirVar("share", dtype)

    def give(k: PrimExpr) -> Stmt:
        return store(result, (row, k), work.element(load(result, row, k), share))

    body = seq(
        store(most, (0,), work.least),
        store(total, (0,), work.zero),
        serial(size, take, "k"),
        serial(size, grow, "k"),
        LetStmt(share, work.share(load(total, 0)), serial(size, give, "k")),
    )
    return Allocate(most, Allocate(total, body))


class _Softmax(Struct, frozen=True):
    """What is computed.

    Attributes:
        data: Rows, or all their elements one behind the other.
        epilogue: ``epilogue(value, indices)`` stores a vector of results.
        lanes: Elements of a vector.
        logarithm: Whether the logarithm is wanted.
    """

    data: Buffer
    epilogue: EpilogueStore
    lanes: int
    logarithm: bool

    def row(self, number: PrimExpr, column: PrimExpr, apart: int = 1) -> tuple[PrimExpr, ...]:
        """Return the place of a vector that begins at a column of a row."""
        outer = unflatten(number, list(self.data.shape[:-1]))
        return (*outer, Ramp(column, apart, self.lanes))

    def read(self, indices_of: tuple[PrimExpr, ...]) -> PrimExpr:
        """Read a vector of the data."""
        return Load(self.data, indices_of, self.data.dtype, self.lanes)

    def registers(self, name: str, count: int) -> Buffer:
        """Return some vectors in registers."""
        return Buffer(name, (count, self.lanes), self.data.dtype, MemoryScope.REGISTER)

    def vector(self, buffer: Buffer, row: PrimExpr | int, column: PrimExpr | int) -> PrimExpr:
        """Read a vector of registers or of what is kept."""
        indices_of = (index(row), Ramp(index(column), 1, self.lanes))
        return Load(buffer, indices_of, buffer.dtype, self.lanes)

    def put(
        self, buffer: Buffer, value: PrimExpr, row: PrimExpr | int, column: PrimExpr | int
    ) -> Stmt:
        """Write a vector to registers or to what is kept."""
        whole = Broadcast(value, self.lanes, value.dtype) if value.lanes == 1 else value
        return Store(buffer, (index(row), Ramp(index(column), 1, self.lanes)), whole)

    @property
    def least(self) -> PrimExpr:
        """What every element is larger than."""
        return const(lowest(self.data.dtype), self.data.dtype)

    @property
    def zero(self) -> PrimExpr:
        """The number 0."""
        return const(0, self.data.dtype)

    def share(self, total: PrimExpr) -> PrimExpr:
        """Return what a result takes of the sum of its row: its inverse, or its logarithm."""
        if self.logarithm:
            return intrinsic(Intrinsic.LOG, total)
        return const(1, total.dtype) / total

    def element(self, stored: PrimExpr, share: PrimExpr) -> PrimExpr:
        """Return a result from what was kept: a difference for the logarithm, or its power."""
        return stored - share if self.logarithm else stored * share


def _larger(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return select(a > b, a, b)


def _by_lanes(work: _Softmax, rows: int, size: int) -> Stmt:
    """Let every lane have a row of its own."""
    lanes = work.lanes
    stored = Buffer("kept", (size, lanes), work.data.dtype, MemoryScope.STACK)
    most, total = work.registers("most", 1), work.registers("total", 1)

    def block(p: PrimExpr) -> Stmt:
        first = minimum(p * lanes, rows - lanes) * size

        def take(k: PrimExpr) -> Stmt:
            item = TirVar("item", work.data.dtype, lanes)
            larger = _larger(item, work.vector(most, 0, 0))
            stmts = seq(work.put(stored, item, k, 0), work.put(most, larger, 0, 0))
            return LetStmt(item, work.read(work.row(index(0), first + k, size)), stmts)

        def grow(k: PrimExpr) -> Stmt:
            less = TirVar("less", work.data.dtype, lanes)
            grown = TirVar("grown", work.data.dtype, lanes)
            stmts = seq(
                work.put(stored, less if work.logarithm else grown, k, 0),
                work.put(total, work.vector(total, 0, 0) + grown, 0, 0),
            )
            power = LetStmt(grown, softmax_exp(less), stmts)
            return LetStmt(less, work.vector(stored, k, 0) - work.vector(most, 0, 0), power)

        share = TirVar("share", work.data.dtype, lanes)

        def give(k: PrimExpr) -> Stmt:
            value = work.element(work.vector(stored, k, 0), share)
            return work.epilogue(value, work.row(index(0), first + k, size))

        body = seq(
            work.put(most, work.least, 0, 0),
            work.put(total, work.zero, 0, 0),
            serial(size, take, "k"),
            serial(size, grow, "k"),
            LetStmt(share, work.share(work.vector(total, 0, 0)), serial(size, give, "k")),
        )
        return Allocate(stored, Allocate(most, Allocate(total, body)))

    return parallel(-(-rows // lanes), block)


class _RowGroup(Struct, frozen=True):
    """Some rows side by side, and some vectors of each.

    Attributes:
        work: What is computed.
        first: The first row.
        rows: How many.
        vectors: Vectors of a row in one step of a loop.
        stored: What is kept of the rows: their powers or, for the logarithm, differences.
        begin: The first row in ``stored``.
        size: Elements of a row.
    """

    work: _Softmax
    first: PrimExpr
    rows: int
    vectors: int
    stored: Buffer
    begin: PrimExpr
    size: int

    def each(self, step: Callable[[int, int, PrimExpr, PrimExpr | None], Stmt]) -> Stmt:
        """Run ``step(row, sum, column, fresh)`` for every vector of every row.

        ``sum`` numbers the vectors that are combined apart. The last vector of a row may overlap
        the one before; ``fresh`` then tells its lanes that were not taken yet.
        """
        lanes = self.work.lanes
        whole = self.size // lanes
        stmts: list[Stmt] = []

        def group(start: PrimExpr, count: int) -> Stmt:
            steps = ((r, u) for u in range(count) for r in range(self.rows))
            return seq(*(step(r, r * self.vectors + u, start + u * lanes, None) for r, u in steps))

        if isinstance(whole, Dim):
            return self._open_each(group, step)
        if whole >= self.vectors:
            width = self.vectors * lanes
            stmts.append(
                serial(whole // self.vectors, lambda c: group(c * width, self.vectors), "at")
            )
        if whole % self.vectors:
            stmts.append(group(index((whole - whole % self.vectors) * lanes), whole % self.vectors))
        rest = self.size % lanes
        if rest:
            start, fresh = index(self.size - lanes), Ramp(index(0), 1, lanes) >= lanes - rest
            stmts += [step(r, r * self.vectors, start, fresh) for r in range(self.rows)]
        return seq(*stmts)

    def _open_each(
        self,
        group: Callable[[PrimExpr, int], Stmt],
        step: Callable[[int, int, PrimExpr, PrimExpr | None], Stmt],
    ) -> Stmt:
        """Run the steps of rows of an open size, which is at least a vector."""
        lanes, width = self.work.lanes, self.vectors * self.work.lanes
        size = index(self.size)
        begin, rest = size // width * width, size % lanes
        fresh = Ramp(index(0), 1, lanes) >= lanes - rest
        tail = seq(*(step(r, r * self.vectors, size - lanes, fresh) for r in range(self.rows)))
        return seq(
            serial(size // width, lambda c: group(c * width, self.vectors), "at"),
            serial((size - begin) // lanes, lambda c: group(begin + c * lanes, 1), "at"),
            IfStmt(rest > 0, tail),
        )

    def combined(self, sums: Buffer, row: int, combine: Callable[..., PrimExpr]) -> PrimExpr:
        """Return the combination of the vectors of a row."""
        value = self.work.vector(sums, row * self.vectors, 0)
        for u in range(1, self.vectors):
            value = combine(value, self.work.vector(sums, row * self.vectors + u, 0))
        return value


def _row_group_loops(work: _Softmax, rows: int, size: int, result: Buffer | None) -> Stmt:
    """Run some rows side by side, or some vectors of one long row.

    Args:
        work: What is computed.
        rows: How many there are.
        size: Elements of each.
        result: What keeps the powers of rows that are too long for the stack.
    """
    fitting = _ROWS_BYTES // (size * work.data.dtype.bytes)
    whole = size // work.lanes
    most = 1 if whole >= _LONG else 2 if whole >= _SHORT else _ACCUMULATORS
    some = max((n for n in (1, 2, most) if n <= min(rows, fitting, most)), default=1)
    # Rows that begin at a vector are written faster, and ones that lie a page apart slower.
    width = (size // work.lanes + 1) * work.lanes
    stack = Buffer("kept", (some, width), work.data.dtype, MemoryScope.STACK)

    def block(p: PrimExpr) -> Stmt:
        first = minimum(p * some, rows - some)
        vectors = _ACCUMULATORS // some
        if result is not None and some == 1 and size * work.data.dtype.bytes >= _DIRECT_BYTES:
            return _rows(_RowGroup(work, first, some, vectors, result, first, size))
        return Allocate(stack, _rows(_RowGroup(work, first, some, vectors, stack, index(0), size)))

    return parallel(-(-rows // some), block)


def _rows(side: _RowGroup) -> Stmt:
    """Compute the rows of a block."""
    work, dtype = side.work, side.work.data.dtype
    powers = replace(side, vectors=max(1, _POWERS // side.rows))
    most = work.registers("most", side.rows * side.vectors)
    total = work.registers("total", side.rows * powers.vectors)
    # An operand in memory is added to; it would be loaded first to subtract from it.
    negated = [TirVar(f"negated{r}", dtype) for r in range(side.rows)]
    shares = [TirVar(f"share{r}", dtype) for r in range(side.rows)]

    def take(r: int, s: int, column: PrimExpr, _fresh: PrimExpr | None) -> Stmt:
        item = work.read(work.row(side.first + r, column))
        return work.put(most, _larger(item, work.vector(most, s, 0)), s, 0)

    def grow(r: int, s: int, column: PrimExpr, fresh: PrimExpr | None) -> Stmt:
        less, grown = (TirVar(name, dtype, work.lanes) for name in ("less", "grown"))
        counted = grown if fresh is None else select(fresh, grown, work.zero)
        stmts = seq(
            work.put(side.stored, less if work.logarithm else grown, side.begin + r, column),
            work.put(total, work.vector(total, s, 0) + counted, s, 0),
        )
        difference = work.read(work.row(side.first + r, column)) + negated[r]
        return LetStmt(less, difference, LetStmt(grown, softmax_exp(less), stmts))

    def give(r: int, _sum: int, column: PrimExpr, fresh: PrimExpr | None) -> Stmt:
        stored = work.vector(side.stored, side.begin + r, column)
        value = work.element(stored, shares[r])
        if fresh is not None and side.stored.scope is MemoryScope.GLOBAL:
            value = select(fresh, value, stored)
        return work.epilogue(value, work.row(side.first + r, column))

    def add(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return a + b

    def clear(buffer: Buffer, value: PrimExpr) -> list[Stmt]:
        return [work.put(buffer, value, s, 0) for s in range(buffer.shape[0])]

    body = side.each(give)
    for r in reversed(range(side.rows)):
        whole = ReduceLanes(BinaryOp.ADD, powers.combined(total, r, add), dtype)
        body = LetStmt(shares[r], work.share(whole), body)
    body = seq(*clear(total, work.zero), powers.each(grow), body)
    for r in reversed(range(side.rows)):
        whole = ReduceLanes(BinaryOp.MAX, side.combined(most, r, _larger), dtype)
        body = LetStmt(negated[r], work.zero - whole, body)
    body = seq(*clear(most, work.least), side.each(take), body)
    return Allocate(most, Allocate(total, body))
