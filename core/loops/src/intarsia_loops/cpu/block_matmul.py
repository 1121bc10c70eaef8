# SPDX-License-Identifier: Apache-2.0
"""GEMM with weights of 4 and 8 bits in blocks: few rows in registers, many by panels.

A vector of codes becomes floats by a mask and a multiply-add (AVX-512: ``vpternlogd``, then
``vfmadd``), which all rows of a tile share: with 12 rows, 12 of 14 instructions of the inner loop
multiply weights. Elements of rows are operands in memory, broadcast.

- 32 registers: 12 rows of one vector take twice 12 sums (of a block, and of all blocks), a word, a
  code and constants. One row is bound by memory, and takes four vectors with two sums each, so that
  8 multiply-adds are in progress.
- 16 registers: 5 rows of one vector take 10 sums, a word and a code; constants come from memory.

From 32 rows on it costs less to write the floats of two vectors of columns down once, and to
multiply all rows with them by the register tile of other products::

    parallel: two vectors of columns
      for part of K:                       # panel [1024, 32]: 128 KiB of the second-level cache
        panel = codes * scales - shifts
        for tile of rows:                  # micro_kernel.py: sums go on from the part before
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.ops.block_matmul import BlockMatmul
from intarsia_ir.ops.block_product import code_of
from intarsia_ir.ops.block_tiles import COLUMNS, LINE, BlockTile
from intarsia_ir.ops.recurrent_loops import items, set_items
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import lets
from intarsia_ir.tir.expr import IntImm, PrimExpr, TirVar, const, index, minimum
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt, Stmt
from intarsia_runtime.dtype import DType

from ..targets import LoopTarget
from .aliased_rows import Rows, with_rows_apart
from .int8x4_schedules import Schedule
from .loops import copy_rows, load, parallel, seq, serial, store
from .micro_kernel import register_tile
from .tiling import CpuTiling

_LARGE = (BlockTile(12, 1), BlockTile(8, 1), BlockTile(4, 2), BlockTile(2, 4), BlockTile(1, 4))
"""Tiles of 32 registers."""

_SMALL = (BlockTile(5, 1), BlockTile(2, 2), BlockTile(1, 4))
"""Tiles of 16 registers."""


_MANY = 32
"""Rows from which on floats of a part of the weight are written down."""

_DEPTH = 1024
"""Most of K in a panel."""

_TILES = (7, 4)
"""Rows of tiles behind the largest."""


class BlockSchedules(Struct, frozen=True):
    """Schedules of products of floats with weights in blocks.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType({"nn.block_matmul": self.product})

    def product(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``nn.block_matmul``; ``None`` where there are no vectors, or no caches."""
        call, tiling = group.function.body, self.tiling_of(target, DType.FLOAT32)
        if not isinstance(call, Call) or not isinstance(call.attrs, BlockMatmul.Attrs):
            return None
        few_registers = tiling.lanes < 4 or tiling.rows <= 2
        if few_registers or COLUMNS % (4 * tiling.lanes):
            return None
        tiles = _LARGE if tiling.rows > 8 else _SMALL
        few = BlockMatmul.tiled(tiles, tiling.lanes, call.attrs, *map(tensor_type, call.args))
        x, codes, scales, *more, out = few.params
        rows, shifts = index(x.shape[0]), more[0] if more else None
        many = _Panels(tiling, call.attrs.bits, x, codes, scales, shifts, out).loops()
        if isinstance(rows, IntImm):
            return replace(few, body=many) if rows.value >= _MANY else few
        return replace(few, body=IfStmt(rows < _MANY, few.body, many))


class _Panels(Struct, frozen=True):
    """A product of many rows; the buffers are those of ``nn.block_matmul``."""

    tiling: CpuTiling
    bits: int
    x: Buffer
    codes: Buffer
    scales: Buffer
    shifts: Buffer | None
    out: Buffer

    @property
    def _width(self) -> int:
        """Columns of a panel."""
        return 2 * self.tiling.lanes

    @property
    def _block(self) -> int:
        """Weights along K that have a scale."""
        return self.x.shape[1] // self.scales.shape[1]

    def loops(self) -> Stmt:
        """Share blocks of columns between threads."""
        depth, blocks = self.x.shape[1], self.scales.shape[1]
        most = max(1, _DEPTH // self._block)
        part = self._block * next(n for n in range(min(most, blocks), 0, -1) if blocks % n == 0)
        panel = Buffer("panel", (part, self._width), DType.FLOAT32, MemoryScope.STACK)
        inside = COLUMNS // self._width

        def item(number: PrimExpr) -> Stmt:
            place = TirVar("stripe"), TirVar("first")

            def one(n: PrimExpr) -> Stmt:
                low = TirVar("low")
                body = seq(self._written(panel, place, low), self._multiplied(panel, place, low))
                return LetStmt(low, n * part, body)

            body = Allocate(panel, seq(self._cleared(place), serial(depth // part, one, "part")))
            bound = LetStmt(place[1], number % inside * self._width, body)
            return LetStmt(place[0], number // inside, bound)

        return parallel(self.codes.shape[0] * inside, item, "columns")

    def _cleared(self, place: tuple[PrimExpr, PrimExpr]) -> Stmt:
        """Begin all sums of a block with 0."""
        zero, column = const(0.0, DType.FLOAT32), place[0] * COLUMNS + place[1]

        def row(r: PrimExpr) -> Stmt:
            return copy_rows(
                self._width, self.tiling.lanes, lambda c: store(self.out, (r, column + c), zero)
            )

        return serial(index(self.x.shape[0]), row, "r")

    def _written(self, panel: Buffer, place: tuple[PrimExpr, PrimExpr], low: PrimExpr) -> Stmt:
        """Write the floats of weights down, from the one at ``low`` on."""
        (stripe, first), lanes, block = place, self.tiling.lanes, self._block
        each = self.x.shape[1] // self.codes.shape[2]

        def of_block(b: PrimExpr) -> Stmt:
            tables = [self.scales] if self.shifts is None else [self.scales, self.shifts]
            names = [
                [TirVar(f"table{v}_{n}", DType.FLOAT32, lanes) for n in range(len(tables))]
                for v in range(0, self._width, lanes)
            ]
            values = [
                items(table, stripe, low // block + b, first + v, lanes)
                for v in range(0, self._width, lanes)
                for table in tables
            ]

            def word(at: PrimExpr) -> Stmt:
                row, stmts = b * (block // each) + at, list[Stmt]()
                for v, (scale, *shift) in zip(range(0, self._width, lanes), names, strict=True):
                    column = first + v
                    place = stripe, column // LINE, low // each + row, column % LINE
                    read = items(self.codes, *place, lanes)
                    word = TirVar(f"word{v}", DType.INT32, lanes)
                    parts: list[Stmt] = []
                    for n in range(each):
                        weight = code_of(word, n, self.bits) * scale
                        weight = weight - shift[0] if shift else weight
                        parts.append(set_items(panel, row * each + n, index(v), weight))
                    stmts.append(LetStmt(word, read, seq(*parts)))
                return seq(*stmts)

            flat = [name for own in names for name in own]
            return lets(flat, values, serial(block // each, word, "word"))

        return serial(panel.shape[0] // block, of_block, "block")

    def _multiplied(self, panel: Buffer, place: tuple[PrimExpr, PrimExpr], low: PrimExpr) -> Stmt:
        """Add the products of all rows with a panel to the sums of its columns."""
        column, rows = place[0] * COLUMNS + place[1], index(self.x.shape[0])

        def tile(start: PrimExpr, size: int) -> Stmt:
            def row(r: PrimExpr | int) -> PrimExpr:
                return minimum(start + r, rows - 1) if size == _TILES[-1] else start + r

            def multiplied(left: Rows) -> Stmt:
                return register_tile(
                    self.tiling,
                    rows=size,
                    columns=self._width,
                    largest=(self.tiling.rows, self._width),
                    steps=(panel.shape[0],),
                    left=lambda r, k: left(r, k[0]),
                    right=lambda k, c: load(panel, k[0], c),
                    epilogue=lambda r, c, value: store(self.out, (row(r), column + c), value),
                    initial=lambda r, c: load(self.out, row(r), column + c),
                )

            def element(r: PrimExpr | int, k: PrimExpr) -> PrimExpr:
                return load(self.x, row(r), low + k)

            extent = (size, panel.shape[0])
            return with_rows_apart(element, extent, panel.dtype, self.tiling.lanes, multiplied)

        # No row is in two tiles: both would add to its sums. The last tile has its last row twice.
        stmts: list[Stmt] = []
        done = index(0)
        for size in (self.tiling.rows, *_TILES):
            count = (rows - done + (size - 1 if size == _TILES[-1] else 0)) // size

            def one(n: PrimExpr, size: int = size, done: PrimExpr = done) -> Stmt:
                start = TirVar("start")
                return LetStmt(start, done + n * size, tile(start, size))

            stmts.append(serial(count, one, "m"))
            done = done + count * size
        return seq(*stmts)
