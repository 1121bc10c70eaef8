# SPDX-License-Identifier: Apache-2.0
"""The function that computes tiles of open products, which the products of a model share.

See :mod:`.shared_tiles`. A tile of one row has several partial sums for each result, as many as
hide the latency of multiply-adds; what they do not divide of K is added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, minimum
from intarsia_ir.tir.forward import number_name
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import IfStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

from .loops import let_all, load, seq, serial, store
from .micro_kernel import MIN_ACCUMULATORS, register_tile
from .prefetch import OpenWeightPrefetch, Prefetch
from .tiling import CpuTiling

MOST_SMALL = 7
"""Most rows of a tile but for the largest: from one more on two tiles are as good as one."""


class TileShape(Struct, frozen=True):
    """What the tiles of a procedure have in common.

    Attributes:
        lanes: Elements of a vector.
        most: Rows of a tile two vectors wide that the machine has registers for.
        sizes: Rows of each tile, the largest first.
        columns: Columns of the tiles, whole vectors.
        dtype: Of all elements.
        prefetch: How the next block of B is fetched; ``None`` if the machine need not be told.
        has_parts: Whether K may lie in several parts, which is a loop more.
    """

    lanes: int
    most: int
    sizes: tuple[int, ...]
    columns: int
    dtype: DType
    prefetch: Prefetch | None
    has_parts: bool = False

    @property
    def name(self) -> str:
        """Name of the procedure, of no other one."""
        sizes = "_".join(str(size) for size in self.sizes)
        parts = "_parts" if self.has_parts else ""
        return f"tiles{parts}_{sizes}of{self.most}x{self.columns}_{self.dtype}x{self.lanes}"


def most_small(largest: int) -> int:
    """Return the most rows of a tile that is smaller than one of so many rows."""
    return min(MOST_SMALL, largest - 1)


class _Tiles(Struct, frozen=True):
    """The tiles of a procedure.

    Attributes:
        shape: What they have in common.
        buffers: Elements of A, of B, and the sums.
        down: Elements from one row of A to the next.
        across: Elements from one row of B to the next.
        depth: K, or the part of it that lies side by side in A.
        parts: How many such parts there are, and the elements of A from one to the next.
        first_row: Of small tiles; rows of the large one begin with the first.
        fetched: The next block of B.
    """

    shape: TileShape
    buffers: tuple[Buffer, Buffer, Buffer]
    down: TirVar
    across: TirVar
    depth: TirVar
    parts: tuple[TirVar, TirVar]
    first_row: PrimExpr
    fetched: OpenWeightPrefetch | None

    def small(self, count: PrimExpr) -> Stmt:
        """Compute so many rows, not more than the second largest tile has."""
        body = self.full_depth(self.shape.sizes[-1])
        for size in self.shape.sizes[-2:0:-1]:
            body = IfStmt(count < size, body, self.full_depth(size))
        return body

    def full_depth(self, size: int) -> Stmt:
        """Multiply all of K; what the partial sums do not divide is added to their total."""
        shape, depth = self.shape, self.depth
        rows_of = size if size == 1 else shape.sizes[0]
        parts = 1
        while parts * rows_of * (shape.columns // shape.lanes) < MIN_ACCUMULATORS:
            parts *= 2
        if parts == 1:
            return self._tile(size, (index(0), depth), 1, more=False)
        main, rest = TirVar("main"), TirVar("rest")
        behind = IfStmt(index(0) < rest, self._tile(size, (main, rest), 1, more=True))
        body = seq(self._tile(size, (index(0), main), parts, more=False), behind)
        return let_all([(main, depth // parts * parts), (rest, depth - main)], body)

    def _tile(
        self, size: int, steps: tuple[PrimExpr, PrimExpr], divisor: int, *, more: bool
    ) -> Stmt:
        shape, (begin, count), (left, right, sums) = self.shape, steps, self.buffers
        first = index(0) if size == shape.sizes[0] else self.first_row
        parts, apart = self.parts

        def place(k: Sequence[PrimExpr], between: PrimExpr) -> PrimExpr:
            within = begin + k[-1]
            return k[0] * between + within if shape.has_parts else within

        return register_tile(
            CpuTiling(shape.lanes, shape.most),
            rows=size,
            columns=shape.columns,
            largest=(size if size == 1 else shape.sizes[0], shape.columns),
            steps=(parts, count) if shape.has_parts else (count,),
            left=lambda r, k: load(left, (first + r) * self.down + place(k, apart)),
            right=lambda k, c: load(right, place(k, self.depth) * self.across + c),
            epilogue=lambda r, c, value: store(sums, (first + r, c), value),
            dtype=shape.dtype,
            weight_prefetch=None if size == 1 else self.fetched,
            initial=(lambda r, c: load(sums, first + r, c)) if more else None,
            divisor=divisor,
        )


@cache
def tile_procedure(shape: TileShape) -> PrimFunc:
    """Return the procedure of all tiles of a shape."""
    names = ("left", "right", "next_block")
    elements = (variable("elements"),)
    left, right, next_block = (Buffer(name, elements, shape.dtype) for name in names)  # pyright: ignore[reportArgumentType] - sizes as numbers
    sums = Buffer("sums", (shape.sizes[0], shape.columns), shape.dtype)
    rows, depth, taps, apart = (TirVar(name) for name in ("rows", "depth", "taps", "apart"))
    down, across = (TirVar(number_name(number)) for number in range(2))
    params, sizes = [left, right], [rows, down, across, depth]
    if shape.has_parts:
        sizes += [taps, apart]
    fetched = None
    if shape.prefetch is not None:
        fetched = OpenWeightPrefetch(
            shape.prefetch, lambda n: load(next_block, n), shape.columns, index(0), index(1)
        )
        params.append(next_block)
        sizes += [fetched.first, fetched.per_step]
    large, most = shape.sizes[:2]
    has_pieces = most < most_small(large)
    first, count = TirVar("first_row"), TirVar("count")
    first_row = first if has_pieces else index(0)
    buffers = (left, right, sums)
    tiles = _Tiles(shape, buffers, down, across, depth, (taps, apart), first_row, fetched)

    def piece(number: PrimExpr) -> Stmt:
        bound = [(first, number * most), (count, minimum(rows - first, most))]
        return let_all(bound, tiles.small(count))

    pieces = (rows + (most - 1)) // most
    behind = serial(pieces, piece, "piece") if has_pieces else tiles.small(rows)
    body = IfStmt(rows < large, behind, tiles.full_depth(large))
    return PrimFunc(shape.name, (*params, sums), 1, body, sizes=tuple(sizes))
