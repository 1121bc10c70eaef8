# SPDX-License-Identifier: Apache-2.0
"""GEMM of open M: ``C[M, N] = A[M, K] @ B``, B packed, M known at run time.

The register tile is that of ``dense.py``; only the number of tiles is open. Full tiles cover the
rows, and smaller tiles the remainder (``row_tiles.py``). The last tile ends at the last row and
overlaps the one before, so some rows are computed twice, with the same result. Tiles have 14 and 7
to 1 rows on AVX-512, 6 to 1 on AVX2: that costs at most 1.06 times as much as tiles for that number
(``tiling.tile_cost``). One row, as in decoding a token, has several partial sums for each result.
Products whose K is not tiny share these tiles with others of the model (``shared_tiles.py``).

Loops, outermost first::

    parallel: panels of tiles x groups of blocks of B
      for block of B in the group:          # [K, width], stays in the first-level cache
        for tile of the panel:              # micro_kernel.py: all of K, accumulators in registers

A panel has as many tiles as :func:`~.dense.panel_bytes` holds: it stays in the second-level cache
while the blocks of B pass, as in ``dense.py``. A block of large weights is prefetched by the tiles
of the block before (``prefetch.py``). XNNPACK's GEMM takes M the same way: tiles of ``mr`` rows,
and a remainder by a kernel of fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.passes.stack_to_scratch import STACK_BYTES
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim
from intarsia_runtime.size import minimum as minimum_size

from .aliased_rows import APART, Rows, copied_rows, most_rows
from .dense import ITEMS, panel_bytes
from .loops import (
    EpilogueStore,
    Source,
    counted,
    let_all,
    load,
    parallel,
    seq,
    serial,
    store,
    unflatten,
)
from .micro_kernel import operands_fetched, register_tile
from .ordered_tiles import OrderedWords, ordered_steps
from .panel import Matrix
from .prefetch import OpenWeightPrefetch, prefetch_next_open_block
from .row_tiles import FEW_ROWS, EvenTiles, RowTiles, SizeChoice, joined_tiles
from .shared_tiles import SharedTiles, TileOperands, even_tiles, shares_tiles
from .tile_procedures import most_small
from .tile_stores import TileEpilogue, is_long, stored_rows
from .tiling import ColumnPart, CpuTiling, column_parts, for_width

_MIDDLE = (7, 6, 5)
"""Rows of tiles between few and the largest, where there are not all sizes."""

_MANY = 16
"""Columns of all blocks by those behind the last from which on these have small tiles alone."""

_MANY_BLOCKS = 24
"""Blocks beside which the columns of one more, zeros behind its last, cost nothing."""

_SHARED_DEPTH = 16
"""K from which on tiles are procedures: MobileNet, of K from 16 on, takes 0.95 to 1.00 of the time,
and 0.92 of it to compile, of what it takes with 64 (Sapphire Rapids)."""

_TILES = 16
"""Most tiles of a panel: enough to use a block of weights again, few enough to share the rows."""


def open_dense_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
    *,
    many: bool = False,
    few: bool = False,
    is_ordered: bool = False,
) -> Stmt:
    """Return the loops of ``left @ weight``.

    Args:
        tiling: Register tile.
        left: The rows; ``m`` is an expression over size variables.
        weight: Packed ``[blocks, depth, width]``, zeros behind the last column.
        outputs: Columns of the result.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        many: Whether rows are nearly always many, as pixels are, so that two sizes of tiles do:
            more versions take three times as long to compile.
        few: Whether rows are few and the product is small beside others, as that of pooled images
            is: tiles of four, and of one.
        is_ordered: Whether words of weights are (``ordered_words.py``).
    """
    tiling = for_width(tiling, weight.shape[2])
    largest = tiling.rows_for(weight.shape[2] // tiling.lanes)
    if not is_ordered:
        largest = min(tiling.rows, largest)
    works: dict[tuple[int, ...], tuple[_OpenProduct, list[ColumnPart]]] = {}
    rows = index(left.m)
    is_deep = weight.shape[1] >= _SHARED_DEPTH and not is_ordered and shares_tiles(tiling)
    for part in column_parts(outputs, weight.shape[2]):
        is_rest = part[0] * weight.shape[2] >= _MANY * part[2]
        if is_deep and (not is_rest or part[0] >= _MANY_BLOCKS):
            tiles, even = tiles_of(rows, largest), even_tiles(rows, largest)
        else:
            own = min(FEW_ROWS, largest) if is_rest else largest
            tiles = tiles_of(rows, own, many=many, few=few or is_rest, coarse=is_ordered)
            even = None
        work = _OpenProduct(tiling, left, weight, epilogue, outer, tiles, is_ordered, even=even)
        # Blocks that call procedures have one loop; a loop of several tiles would only be longer.
        key = part[:1] if even is None else ()
        works.setdefault(key, (work, []))[1].append(part)
    return seq(*(work.loops(parts) for work, parts in works.values()))


def tiles_of(
    rows: PrimExpr, largest: int, *, many: bool = False, few: bool = False, coarse: bool = False
) -> RowTiles:
    """Return how tiles cover rows; ``many`` and ``few`` are those of :func:`open_dense_loops`.

    A tile of each small size computes any number of rows at the least cost. Where there are not so
    many sizes, as ``coarse`` asks for, the next larger one does, of rows that are there twice.
    """
    small = min(FEW_ROWS, largest)
    if many:
        sizes = (largest, small)
    elif few:
        sizes = (small, 1)
    elif coarse:
        sizes = (largest, *(n for n in _MIDDLE if 2 * n <= largest + FEW_ROWS), small, 2, 1)
    else:
        return RowTiles(rows, (largest, *range(most_small(largest), 0, -1)))
    clamped = (size for size in sizes if size > 1 and size in (*_MIDDLE, small))
    return RowTiles(rows, tuple(dict.fromkeys(sizes)), tuple(dict.fromkeys(clamped)))


def one_row_loops(
    tiling: CpuTiling,
    left: Matrix,
    weight: Source,
    outputs: int,
    epilogue: EpilogueStore,
    outer: list[int],
) -> Stmt:
    """Return the loops of one row, where others compute more; arguments as of the above."""
    tiles = RowTiles(index(left.m), (1,))
    work = _OpenProduct(tiling, left, weight, epilogue, outer, tiles)
    return seq(*(work.loops([part]) for part in column_parts(outputs, weight.shape[2])))


class _OpenProduct(Struct, frozen=True):
    """``left @ weight`` with tiles of some sizes.

    Attributes:
        tiling: Register tile.
        left: The rows.
        weight: Packed ``[blocks, depth, width]``.
        epilogue: Stores an element.
        outer: Dimensions that the rows of the result stand for.
        tiles: How tiles cover the rows.
        is_ordered: Whether words of weights are (``ordered_words.py``).
        copied: Reads elements of the rows of large tiles from a copy of them, if there is one.
        even: How tiles cover the rows, where they are procedures (``shared_tiles.py``).
    """

    tiling: CpuTiling
    left: Matrix
    weight: Source
    epilogue: EpilogueStore
    outer: list[int]
    tiles: RowTiles
    is_ordered: bool = False
    copied: Rows | None = None
    even: EvenTiles | None = None

    @property
    def _depth(self) -> int:
        return self.left.k if self.is_ordered else self.weight.shape[1]

    def loops(self, parts: Sequence[ColumnPart]) -> Stmt:
        """Share panels and groups of blocks between threads."""
        tile, first, blocks = self.tiles.sizes[0], parts[0][0], sum(part[1] for part in parts)
        if self.even is None:
            counts, bound = self.tiles.counts("rows")
        else:
            counts, bound = [self.even.large, self.even.small], self.even.bound()
        row_bytes = max(1, self._depth * self.weight.dtype.bytes * tile)
        in_panel = max(1, min(_TILES, panel_bytes(self.tiling, self.weight) // row_bytes))
        panels = maximum((counts[0] + (in_panel - 1)) // in_panel, 1)
        group = max(1, -(-blocks // ITEMS))
        groups = -(-blocks // group)

        def item(p: PrimExpr) -> Stmt:
            begin, end = TirVar("begin"), TirVar("end")
            smaller = [TirVar(f"some_{count.name}") for count in counts[1:]]
            block = counted(BinaryOp.MUL, counted(BinaryOp.FLOOR_MOD, p, groups), group) + first
            number = index(group)
            if blocks % group:
                number = minimum(number, (blocks + first) - block)
            panel = counted(BinaryOp.FLOOR_DIV, p, groups)
            values = [(begin, panel * in_panel), (end, minimum(begin + in_panel, counts[0]))]
            for some, count in zip(smaller, counts[1:], strict=True):
                values.append((some, select(end >= counts[0], count, index(0))))
            total = TirVar("tiles")
            if self._fetched(block, (begin, total)) is not None:
                values.append((total, sum(smaller, end - begin)))
            part = (begin, end, *smaller)

            def multiplied(work: _OpenProduct) -> Stmt:
                def multiply(c: PrimExpr) -> Stmt:
                    number = TirVar("block")
                    return LetStmt(number, block + c, work._block(number, parts, part, total))

                return serial(number, multiply, "n")

            return let_all(values, self._rows_apart((begin, end), in_panel, multiplied))

        return let_all(bound, parallel(counted(BinaryOp.MUL, panels, groups), item))

    def _rows_apart(
        self,
        tiles: tuple[PrimExpr, PrimExpr],
        most: int,
        body: Callable[[_OpenProduct], Stmt],
    ) -> Stmt:
        """Return ``body``, with a copy of the rows of large tiles if these compete for a set of a
        cache (``aliased_rows.py``).

        Args:
            tiles: The first large tile of a panel, and the one behind its last.
            most: How many there are at most.
            body: What multiplies them with blocks.
        """
        size, (begin, end), stride = self.tiles.sizes[0], tiles, self.left.stride_bytes
        is_known = self.weight.dtype.is_float and not isinstance(stride, Dim)
        if not is_known or size <= most_rows(stride):
            return body(self)
        rows, first, length = index(self.left.m), TirVar("base"), self.left.k + APART
        if most * size * length * self.weight.dtype.bytes > STACK_BYTES:
            # It lies in the workspace: products of few rows, which no large tile has, take nothing.
            rounded = self.left.m + (0 if self.even is not None else size - 1)
            most = cast("int", minimum_size(rounded // size, most))
        panel = Buffer("panel", (most * size, length), self.weight.dtype, MemoryScope.STACK)

        def given(r: PrimExpr | int, k: PrimExpr) -> PrimExpr:
            return self.left.element(minimum(first + r, rows - 1), k)

        def element(row: PrimExpr | int, k: PrimExpr) -> PrimExpr:
            return load(panel, row - first, k)

        extent = ((end - begin) * size, self.left.k)
        filled = copied_rows(panel, extent, self.tiling.lanes, given)
        loops = Allocate(panel, seq(filled, body(replace(self, copied=element))))
        return LetStmt(first, minimum(begin * size, rows - size), loops)

    def _block(
        self,
        block: PrimExpr,
        columns: Sequence[ColumnPart],
        part: Sequence[PrimExpr],
        total: PrimExpr,
    ) -> Stmt:
        """Multiply a panel with a block, whose columns depend on which one it is."""
        panel = self._panel if self.even is None else self._shared
        *full, last = columns
        made = panel(block, last[2], part, total)
        for first, blocks, used in full:
            made = IfStmt(block < first + blocks, panel(block, used, part, total), made)
        return made

    def _panel(self, block: PrimExpr, used: int, part: Sequence[PrimExpr], total: PrimExpr) -> Stmt:
        """Multiply a panel with a block: its large tiles, and smaller ones behind the last."""
        begin, end, *smaller = part
        counts = list(zip(self.tiles.sizes, (end - begin, *smaller), strict=True))
        apart = 0 if is_long(self._stored(block, index(0)), self._sums) else 1
        if len(counts) - apart < 2:
            apart = len(counts)
        before, done = begin * self.tiles.sizes[0], index(0)
        stmts: list[Stmt] = []
        for size, count in counts[:apart]:

            def one(
                t: PrimExpr, size: int = size, before: PrimExpr = before, done: PrimExpr = done
            ) -> Stmt:
                start = TirVar("start")
                fetched = self._fetched(block, (done + t, total))
                stored = self._stored(block, start, size)
                loops = self._tile(size, start, (block, used), fetched, stored)
                body = self._with_fetched(fetched, loops)
                return LetStmt(start, self.tiles.start(size, t, before), body)

            stmts.append(serial(count, one, "m"))
            before, done = before + count * size, done + count
        if counts[apart:]:
            stmts.append(self._joined((block, used), counts[apart:], (before, done), total))
        return seq(*stmts)

    def _shared(
        self, block: PrimExpr, used: int, part: Sequence[PrimExpr], total: PrimExpr
    ) -> Stmt:
        """Multiply a panel with a block by procedures, with one epilogue for all tiles."""
        (begin, end, smaller), even, large = part, self.even, TirVar("large")
        assert even is not None  # who calls this has seen it
        blocks, _, width = self.weight.shape
        if blocks <= _MANY_BLOCKS:
            width = -(-used // self.tiling.lanes) * self.tiling.lanes
        tiles = SharedTiles(self.tiling, even, (used, width), self._sums)

        def tile(m: PrimExpr) -> Stmt:
            fetched = self._fetched(block, (m, total))

            def multiply(start: PrimExpr, call: Callable[[TileOperands], Stmt]) -> Stmt:
                def operands(element: Rows, stride: int) -> Stmt:
                    strides = (index(stride), index(self.weight.shape[2]))
                    first = element(start, index(0)), load(self.weight, block, 0, 0)
                    return call(TileOperands(*first, strides, index(self._depth), fetched))

                made = operands(lambda r, k: self.left.element(index(r), k), self.left.k)
                if self.copied is not None:
                    made = IfStmt(m < large, operands(self.copied, self.left.k + APART), made)
                return self._with_fetched(fetched, made)

            return tiles.tile((begin, large), m, multiply, lambda start: self._stored(block, start))

        return LetStmt(large, end - begin, serial(large + smaller, tile, "m"))

    def _joined(
        self,
        part: tuple[PrimExpr, int],
        counts: Sequence[tuple[int, PrimExpr]],
        begun: tuple[PrimExpr, PrimExpr],
        total: PrimExpr,
    ) -> Stmt:
        """Multiply with a block what tiles of several sizes cover, with one epilogue for all.

        Args:
            part: The block, and columns of it that are there.
            counts: Rows of a tile of each size, and how many of them there are.
            begun: How many rows and tiles of the panel are done.
            total: Tiles of the panel.
        """
        (block, used), lanes = part, self.tiling.lanes
        width = -(-used // lanes) * lanes
        shape = (max(size for size, _ in counts), width)
        sums = Buffer("sums", shape, self._sums, MemoryScope.STACK)

        def tile(number: PrimExpr, rows: tuple[PrimExpr, PrimExpr], choose: SizeChoice) -> Stmt:
            start, count = rows
            fetched = self._fetched(block, (begun[1] + number, total))

            def kept(r: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
                return store(sums, (r, c), value)

            made = choose(lambda size: self._tile(size, start, (block, width), fetched, kept))
            epilogue = self._stored(block, start)
            size = (count, used, lanes)
            near = operands_fetched(self.tiling, epilogue, size, sums.dtype)
            body = seq(*near, made, stored_rows(sums, size, epilogue))
            return Allocate(sums, self._with_fetched(fetched, body))

        return joined_tiles(self.tiles, counts, begun[0], tile)

    @property
    def _sums(self) -> DType:
        """Element type of the sums."""
        return self.tiling.sums or self.weight.dtype

    def _stored(self, block: PrimExpr, start: PrimExpr, size: int = 0) -> TileEpilogue:
        """Return what finishes results of a block from a row on, of all rows or those of a tile."""

        def stored(r: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
            row = self.tiles.row(size, start, r)
            return self.epilogue(
                value, (*unflatten(row, self.outer), block * self.weight.shape[2] + c)
            )

        return stored

    def _fetched(
        self, block: PrimExpr, shared: tuple[PrimExpr, PrimExpr]
    ) -> OpenWeightPrefetch | None:
        """Return what a tile fetches; ``shared`` is its number, and how many the panel has."""
        if self.tiles.sizes[0] == 1:
            return None
        steps = self._steps if self.is_ordered else 0
        return prefetch_next_open_block(
            self.tiling.prefetch, self.weight, (block + 1, 0), shared, steps
        )

    def _with_fetched(self, fetched: OpenWeightPrefetch | None, body: Stmt) -> Stmt:
        return body if fetched is None else fetched.bind(self._steps, body)

    @property
    def _steps(self) -> int:
        """Steps in which a tile reads a block."""
        return ordered_steps(self.left.k) if self.is_ordered else self._depth

    def _tile(
        self,
        size: int,
        start: PrimExpr,
        part: tuple[PrimExpr, int],
        fetched: OpenWeightPrefetch | None,
        epilogue: TileEpilogue,
    ) -> Stmt:
        """Multiply some rows with a block.

        Args:
            size: How many.
            start: The first row.
            part: The block, and columns of it that are computed.
            fetched: The next block.
            epilogue: What to do with the sums.
        """
        weight, tiles, (block, columns) = self.weight, self.tiles, part
        copied = self.copied if size == tiles.sizes[0] else None
        element = self.left.element if copied is None else copied
        return register_tile(
            self.tiling,
            rows=size,
            columns=columns,
            largest=(1 if size == 1 else tiles.sizes[0], weight.shape[2]),
            steps=(self._depth,),
            left=lambda r, k: element(tiles.row(size, start, r), k[0]),
            right=lambda k, c: load(weight, block, k[0], c),
            epilogue=epilogue,
            dtype=weight.dtype,
            weight_prefetch=None if size == 1 else fetched,
            words=self._words(block, size, start),
            is_one_of_several=True,
        )

    def _words(self, block: PrimExpr, size: int, first: PrimExpr) -> OrderedWords | None:
        """Return the words of a block, if they are in an order of their own."""
        dot = self.tiling.ordered if self.is_ordered else None

        def element(r: int | PrimExpr, place: PrimExpr) -> PrimExpr:
            return self.left.element(self.tiles.row(size, first, r), place)

        return None if dot is None else OrderedWords(dot, self.weight, block, self.left.k, element)
