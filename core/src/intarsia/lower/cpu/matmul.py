# SPDX-License-Identifier: Apache-2.0
"""Product of two matrices that are both known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from ...ir.types import TensorType
from ...tir.buffer import Buffer, Scope
from ...tir.expr import (
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    TirVar,
    const,
    index,
    minimum,
    select,
)
from ...tir.stmt import Allocate, LetStmt, Stmt, Store
from .dense import ITEMS
from .loops import Finish, cut, for_parts, load, parallel, seq, serial, store, unflatten, vectorized
from .tile import Shape, best_rows, block_width, column_parts, register_tile

_PANEL_BYTES = 512 * 1024
_MOST_VECTORS = 8
_ROWS_ABREAST = 8


class Product(Struct, frozen=True):
    """Operands of a batch of products.

    Attributes:
        a: ``[..., M, K]``, or ``[..., K, M]`` if transposed.
        b: ``[..., K, N]``, or ``[..., N, K]`` if transposed.
        batch: Leading dimensions of the result.
        rows: M.
        columns: N.
        depth: K.
        transpose_a: Whether ``a`` is transposed.
        transpose_b: Whether ``b`` is transposed.
    """

    a: Buffer
    b: Buffer
    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    transpose_a: bool
    transpose_b: bool

    @property
    def is_row_by_rows(self) -> bool:
        """Whether all of one row's elements meet those of rows of ``b``: no column is needed."""
        return self.rows == 1 and self.transpose_b and not self.transpose_a


def turns_panels(shape: Shape, b: TensorType, batch: Sequence[int]) -> bool:
    """Whether :func:`matmul_loops` turns a transposed matrix round by itself, a panel at a time.

    Not one that several products share: each of them would turn it round again.

    Args:
        shape: Register tile.
        b: Type of the transposed matrices.
        batch: Leading dimensions of the result.
    """
    *own, columns, depth = b.static_shape
    width = block_width(columns, shape)
    return (
        shape.turn is not None
        and min(columns, depth) >= shape.lanes
        and prod(own) == prod(batch)
        and depth * (width + shape.lanes) * b.dtype.bytes <= _PANEL_BYTES
    )


def matmul_loops(shape: Shape, product: Product, finish: Finish) -> Stmt | None:
    """Return the loops; ``None`` if a panel of ``b`` would not fit on the stack."""
    if product.is_row_by_rows and product.depth >= shape.lanes > 1:
        return _dots(shape, product, finish)
    width = _width(shape, product)
    if not _fits(product, width):
        return None
    stmts: list[Stmt] = []
    for first, blocks, used in column_parts(product.columns, width):
        abreast = _abreast(shape, product, blocks, width) if used == width else 1

        def item(
            p: PrimExpr, f: int = first, b: int = blocks, u: int = used, n: int = abreast
        ) -> Stmt:
            pieces = -(-b // n)
            start = p % pieces * n
            count = n if b % n == 0 else minimum(index(n), b - start)
            place = _Place(p // pieces, start + f, count)
            return _blocks(shape, product, place, (width, u), finish)

        stmts.append(parallel(prod(product.batch) * -(-blocks // abreast), item))
    return seq(*stmts)


def _abreast(shape: Shape, product: Product, blocks: int, width: int) -> int:
    """Return how many blocks of columns an item computes side by side.

    A result whose rows are written a block at a time waits for memory: caches fetch ahead what is
    written in order.
    """
    few_rows = product.rows <= shape.rows_for(width // shape.lanes)
    if few_rows or product.transpose_b or blocks < 2 * ITEMS or shape.lanes == 1:
        return 1
    most = max(1, shape.panel_bytes // (product.depth * width * product.b.dtype.bytes))
    items = max(-(-blocks // most), -(-ITEMS // prod(product.batch)))
    return -(-blocks // items)


def _dots(shape: Shape, product: Product, finish: Finish) -> Stmt:
    """Multiply a row with rows, some at a time, by vectors along both."""
    lanes, depth, columns = shape.lanes, product.depth, product.columns
    some = min(columns, _ROWS_ABREAST)
    blocks = -(-columns // some)
    dtype = product.a.dtype

    def item(p: PrimExpr) -> Stmt:
        outer = unflatten(p // blocks, list(product.batch)) if product.batch else []
        a_at = _matrix(product.a, outer, product.batch, flipped=False)
        b_at = _matrix(product.b, outer, product.batch, flipped=True)
        # The last rows overlap those before, if there is no whole number of them.
        first = minimum((p % blocks) * some, columns - some)
        sums = Buffer("sums", (some, lanes), dtype, Scope.REGISTER)

        def vector(element: PrimExpr) -> PrimExpr:
            assert isinstance(element, Load)  # as of every element
            *others, last = element.indices
            return Load(element.buffer, (*others, Ramp(last, 1, lanes)), dtype, lanes)

        def place(n: int) -> tuple[PrimExpr, PrimExpr]:
            return index(n), Ramp(index(0), 1, lanes)

        def add(k: PrimExpr, fresh: PrimExpr | None = None) -> Stmt:
            shared = TirVar("shared", dtype, lanes)
            stmts: list[Stmt] = []
            for n in range(some):
                value = shared * vector(b_at(k, first + n))
                counted = value if fresh is None else select(fresh, value, const(0, dtype))
                stmts.append(Store(sums, place(n), Load(sums, place(n), dtype, lanes) + counted))
            return LetStmt(shared, vector(a_at(index(0), k)), seq(*stmts))

        zero = Broadcast(const(0, dtype), lanes, dtype)
        parts: list[Stmt] = [Store(sums, place(n), zero) for n in range(some)]
        parts.append(serial(depth // lanes, lambda k: add(k * lanes), "k"))
        if depth % lanes:
            # Elements that were taken before count as nothing.
            fresh = Ramp(index(0), 1, lanes) >= lanes - depth % lanes
            parts.append(add(index(depth - lanes), fresh))
        for n in range(some):
            whole = ReduceLanes(BinaryOp.ADD, Load(sums, place(n), dtype, lanes), dtype)
            parts.append(finish(whole, (*outer, index(0), first + n)))
        return Allocate(sums, seq(*parts))

    return parallel(prod(product.batch) * blocks, item)


def _width(shape: Shape, product: Product) -> int:
    """Return how many columns one pass over the depth computes.

    A single row waits for memory, which is read best as it lies there: many columns at once.
    """
    vectors = min(-(-product.columns // shape.lanes), _MOST_VECTORS)
    least = block_width(product.columns, shape)
    if product.rows > 1 or product.transpose_b:
        return least
    wide = (v * shape.lanes for v in range(vectors, 2, -1))
    return next((width for width in wide if _fits(product, width)), least)


def _fits(product: Product, width: int) -> bool:
    """Whether a panel of so many columns fits on the stack, if there are panels."""
    copied = product.transpose_b or product.columns % width
    return not copied or product.depth * width * product.b.dtype.bytes <= _PANEL_BYTES


class _Place(Struct, frozen=True):
    """``count`` blocks of columns from ``block`` on, of one product of the batch."""

    number: PrimExpr
    block: PrimExpr
    count: PrimExpr | int


def _blocks(
    shape: Shape, product: Product, place: _Place, columns: tuple[int, int], finish: Finish
) -> Stmt:
    """Compute some blocks of columns of one product of the batch; a copied one alone."""
    width, used = columns
    outer = unflatten(place.number, list(product.batch)) if product.batch else []
    a_at = _matrix(product.a, outer, product.batch, flipped=product.transpose_a)
    b_at = _matrix(product.b, outer, product.batch, flipped=product.transpose_b)
    first = place.block * width
    copied = product.transpose_b or used < width
    kind = TensorType(product.b.shape, product.b.dtype)
    turned = product.transpose_b and turns_panels(shape, kind, product.batch)
    # Squares at the end overlap those before: of the first columns some lie before the panel.
    before = shape.lanes if turned and used % shape.lanes else 0
    panel = Buffer("panel", (product.depth, before + width), product.b.dtype, Scope.STACK)

    def right(k: Sequence[PrimExpr], c: PrimExpr) -> PrimExpr:
        return load(panel, k[0], c + before) if copied else b_at(k[0], first + c)

    limit = best_rows(product.rows, shape.rows_for(width // shape.lanes))

    def tile(start: PrimExpr, count: int, skipped: PrimExpr | int) -> Stmt:
        return register_tile(
            shape,
            rows=count,
            columns=used,
            largest=(limit, width),
            steps=(product.depth,),
            left=lambda r, k: a_at(start + r, k[0]),
            right=lambda k, c: right(k, c + skipped),
            finish=lambda r, c, value: finish(value, (*outer, start + r, first + (c + skipped))),
            dtype=product.a.dtype,
        )

    def tiled(start: PrimExpr, count: int) -> Stmt:
        if place.count == 1:
            return tile(start, count, 0)
        return serial(place.count, lambda n: tile(start, count, n * width), "n")

    body = for_parts(cut(product.rows, limit), tiled, "m")
    if not copied:
        return body
    if turned:
        filled = _turn(shape, product, panel, (before, used), lambda k, c: b_at(k, first + c))
    else:
        filled = _fill(product, panel, used, lambda k, c: b_at(k, first + c))
    return Allocate(panel, seq(filled, body))


def _turn(
    shape: Shape,
    product: Product,
    panel: Buffer,
    columns: tuple[int, int],
    element: Callable[[PrimExpr, PrimExpr], PrimExpr],
) -> Stmt:
    """Fill the panel with squares of ``b`` turned round; columns behind the last are 0."""
    turn, lanes, depth = shape.turn, shape.lanes, product.depth
    before, used = columns
    assert turn is not None  # or panels are filled element by element
    starts = [min(c, used - lanes) for c in range(0, used, lanes)]

    def vector(place: PrimExpr) -> PrimExpr:
        assert isinstance(place, Load)  # as of every element
        *outer, last = place.indices
        return Load(place.buffer, (*outer, Ramp(last, 1, lanes)), place.dtype, lanes)

    def square(k: PrimExpr, c: int) -> Stmt:
        def write(number: int, value: PrimExpr) -> Stmt:
            return Store(panel, (k + number, Ramp(index(c + before), 1, lanes)), value)

        return turn([vector(element(k, index(c + i))) for i in range(lanes)], write)

    def strip(k: PrimExpr) -> Stmt:
        return seq(*(square(k, c) for c in starts))

    stmts: list[Stmt] = []
    rest = panel.shape[1] - before - used
    if rest:
        zero = const(0, panel.dtype)

        def clear(k: PrimExpr) -> Stmt:
            return vectorized(rest, lambda c: store(panel, (k, c + before + used), zero))

        stmts.append(serial(depth, clear, "k"))
    stmts.append(serial(depth // lanes, lambda k: strip(k * lanes), "k"))
    if depth % lanes:
        stmts.append(strip(index(depth - lanes)))
    return seq(*stmts)


def _fill(
    product: Product, panel: Buffer, used: int, element: Callable[[PrimExpr, PrimExpr], PrimExpr]
) -> Stmt:
    """Copy a block of ``b`` into the panel; columns behind the last are 0."""
    width = panel.shape[1]
    zero = const(0, panel.dtype)

    def row(k: PrimExpr) -> Stmt:
        own = vectorized(used, lambda c: store(panel, (k, c), element(k, c)))
        if product.transpose_b:
            own = serial(used, lambda c: store(panel, (k, c), element(k, c)))
        if used == width:
            return own
        rest = vectorized(width - used, lambda c: store(panel, (k, c + used), zero))
        return seq(own, rest)

    return serial(product.depth, row, "k")


def _matrix(
    buffer: Buffer, outer: Sequence[PrimExpr], batch: Sequence[int], *, flipped: bool
) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """Return ``element(i, j)`` of the matrix that broadcasting puts at ``outer``."""
    own = buffer.shape[:-2]
    skip = len(batch) - len(own)
    leading = [index(0) if size == 1 else at for size, at in zip(own, outer[skip:], strict=True)]

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return load(buffer, *leading, *((j, i) if flipped else (i, j)))

    return element
