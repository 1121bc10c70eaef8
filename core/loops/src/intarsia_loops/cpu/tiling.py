# SPDX-License-Identifier: Apache-2.0
"""The parameters of a CPU: register tile, strips, panels, and how packed operands are multiplied.

A backend describes a machine by one :class:`CpuTiling`; all schedules of this folder read it. The
register tile itself is in ``micro_kernel.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.capabilities import Memory
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.passes.stack_to_scratch import STACK_BYTES
from intarsia_ir.tir.stmt import Stmt
from intarsia_runtime.dtype import DType

from .matrix_unit import MatrixUnit
from .ordered_words import OrderedDot
from .packed_operands import Bf16x2, Int8x4, RowPairs
from .prefetch import Prefetch

STACKED_STRIP = STACK_BYTES * 3 // 4
"""Bytes of a strip that the stack holds beside a tile: none is reserved for each thread."""

_WIDE_LANES = 16
"""Elements of float32 in a vector of 512 bits."""
_PER_EMPTY = 8
"""Columns of results for each that a block of paired weights may have beyond them."""


MicroKernel: TypeAlias = "Callable[[Buffer, Sequence[PrimExpr], PrimExpr, PrimExpr | int], Stmt]"
"""What :class:`CpuTiling` says of ``micro_kernel``."""


class CpuTiling(Struct, frozen=True):
    """Register tile and cache budgets of a machine.

    A tile of ``rows`` x 2 vectors keeps ``2 * rows`` accumulators, 2 vectors of B (packed weights)
    and 1 broadcast element of A in registers: 6 x 2 takes 12 + 2 + 1 = 15 of 16 ymm of AVX2, 14 x 2
    takes 28 + 2 + 1 = 31 of 32 zmm of AVX-512 or q registers of NEON. 6 x 16 is the sgemm tile of
    BLIS for Haswell; the rule "fill the registers but for one row of B" is Goto and van de Geijn's
    ("Anatomy of high-performance matrix multiplication", 2008).

    Attributes:
        lanes: Elements in a vector.
        rows: Rows of a tile two vectors wide.
        strip_bytes: Most memory of a strip: the padded copy of some input rows of a convolution.
        prefetch: ``prefetch(element, body)`` is ``body`` after a software prefetch of the cache
            line of ``element``, a load; ``None`` if the hardware prefetches or there is no cache.
        int8x4: How 8-bit operands are multiplied; ``None`` leaves them to default loops.
        bf16x2: How float32 is multiplied in bfloat16; ``None`` if that is not allowed or possible.
        add: ``add(total, left, right)``: the step of a tile; multiply-add if ``None``.
        sums: Element type of sums; that of the weights if ``None``.
        micro_kernel: ``micro_kernel(sums, left, right, steps)``: replaces the inner loop of a tile.
        row_kernel: The same where rows of both operands lie side by side along K.
        unit: The matrix unit that multiplies; ``None`` if vectors do.
        tile_columns: Output pixels in a row that one tile computes; a rule chooses if 0.
        panel_bytes: Most memory of a panel: the rows of A that share one pass over a block of B.
        copies_rows: Whether a panel is copied to contiguous memory; a rule chooses if ``None``.
        neighbours: Output pixels in a row that a depthwise tile computes.
        deinterleave: ``deinterleave(a, b, first)``: of two adjacent vectors, the elements
            ``first``, ``first + 2`` and so on; ``None`` if strided loads are as fast.
        left_lanes: ``left_lanes(element, lane)``: element ``lane`` of the vector of A that begins
            at ``element``, in all lanes, where instructions multiply by a lane of a register
            (NEON); ``None`` if elements are loaded one by one. Each row then has a register of A.
        row_pairs: What multiplies two rows of a tile at a time; ``None`` if nothing does.
        float16: The tile of float16 products that add up in float16; ``None`` if they must not.
        byte_vectors: Vectors of sums side by side that become bytes together (NEON: 2).
        transpose_registers: ``transpose_registers(rows, write)`` transposes a square of vectors,
            one a row, and has ``write(i, column)`` store column ``i``; ``None`` if it cannot.
        shares_tiles: Whether kernels may call procedures (``shared_tiles.py``).
        vector_types: Whether loops over registers are written with vector types, so that sums of
            a tile are a register each.
    """

    lanes: int
    rows: int
    strip_bytes: int = 224 * 1024
    prefetch: Prefetch | None = None
    int8x4: Int8x4 | None = None
    bf16x2: Bf16x2 | None = None
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    micro_kernel: MicroKernel | None = None
    row_kernel: MicroKernel | None = None
    unit: MatrixUnit | None = None
    sums: DType | None = None
    tile_columns: int = 0
    panel_bytes: int = 192 * 1024
    copies_rows: bool | None = None
    neighbours: int = 8
    deinterleave: Callable[[PrimExpr, PrimExpr, int], PrimExpr] | None = None
    left_lanes: Callable[[PrimExpr, int], PrimExpr | None] | None = None
    row_pairs: RowPairs | None = None
    float16: CpuTiling | None = None
    byte_vectors: int = 1
    transpose_registers: (
        Callable[[Sequence[PrimExpr], Callable[[int, PrimExpr], Stmt]], Stmt] | None
    ) = None
    shares_tiles: bool = False
    vector_types: bool = False

    @property
    def ordered(self) -> OrderedDot | None:
        """How words of bytes in an order of their own are multiplied, if the machine does that."""
        return None if self.int8x4 is None else self.int8x4.ordered

    @property
    def copied_lanes(self) -> int:
        """Elements that a copy of rows moves at a time: of NEON four vectors, which pairs move."""
        return self.lanes if self.left_lanes is None else 4 * self.lanes

    def rows_for(self, vectors: int) -> int:
        """Return the rows of a tile ``vectors`` wide.

        ``registers_of(rows_for(v), v)`` is at most ``2 * rows + 4``: the registers of the tile two
        vectors wide and one more. Pairs of rows have two registers of A, need two of B, and leave
        two to what LLVM holds between.
        """
        if self.row_pairs is not None:
            return self.rows // (vectors + 1) * 2
        if self.left_lanes is not None:
            return max(1, (2 * self.rows + 4 - vectors) // (vectors + 1))
        if vectors <= 2:
            return self.rows if vectors == 2 else 2 * self.rows
        return max(1, (2 * self.rows + 3 - vectors) // vectors)


def registers_of(rows: int, vectors: int) -> int:
    """Return the vector registers of a tile: accumulators, one row of B, one broadcast of A."""
    return rows * vectors + vectors + 1


def fit_caches(tiling: CpuTiling, memory: Sequence[Memory]) -> CpuTiling:
    """Return a tiling whose strips and panels stay in the second-level cache of a core.

    Strips take at most 7/8 of it and panels 3/4; the rest is for the block of weights that streams
    through: the shares that the defaults have of 256 KiB. A larger cache does not enlarge them.

    Args:
        tiling: Of a machine with any cache.
        memory: Levels of memory of the device; those of the kind's own have no caches.
    """
    cache = next((level for level in memory if level.name == "l2" and level.size), None)
    if cache is None:
        return tiling
    share = cache.size // cache.shared_by
    return replace(
        tiling,
        strip_bytes=min(tiling.strip_bytes, share * 7 // 8),
        panel_bytes=min(tiling.panel_bytes, share * 3 // 4),
    )


def best_rows(extent: int, limit: int) -> int:
    """Return the rows of a tile, at most ``limit``, that cover ``extent`` rows at the least cost.

    Tiles of fewer than 4 rows stall on the latency of their accumulators; a remainder is one more
    tile.
    """
    limit = max(1, min(limit, extent))

    def cost(rows: int) -> float:
        full_tiles, remainder = divmod(extent, rows)
        return full_tiles * tile_cost(rows) + (tile_cost(remainder) if remainder else 0.0)

    return min(range(limit, 0, -1), key=cost)


def tile_cost(rows: int) -> float:
    """Return what a tile of some rows costs, in rows: few of them wait for their accumulators."""
    return max(float(rows), 4.0) + 0.5


def block_width(outputs: int, tiling: CpuTiling) -> int:
    """Return the width of a packed block of weights: one or two vectors of output columns."""
    return tiling.lanes if outputs <= tiling.lanes else 2 * tiling.lanes


def float_width(outputs: int, tiling: CpuTiling) -> int:
    """Return the width of a packed block of float32 weights: as :func:`block_width`, or half a one.

    Eight outputs or fewer leave half of a vector of 512 bits empty, which AMD's Zen 4 computes as
    two halves, and others as fast as one of 256. (3x39 window, 8 channels to 8: 0.56 of the time.)
    """
    half = tiling.lanes // 2
    fits_half = tiling.lanes == _WIDE_LANES and tiling.unit is None and outputs <= half
    return half if fits_half else block_width(outputs, tiling)


def for_width(tiling: CpuTiling, width: int) -> CpuTiling:
    """Return the tiling for packed blocks of a width: of shorter vectors for half a one."""
    if width >= tiling.lanes:
        return tiling
    return replace(tiling, lanes=width, deinterleave=None, transpose_registers=None)


def window_width(outputs: int, tiling: CpuTiling) -> int:
    """Return the width of a packed block of weights of a window.

    Three vectors are one block: the third alone would have tiles of as many rows, whose sums are
    too few to hide the latency of multiply-adds (512 channels, 19 x 19 pixels, 24 outputs: 0.83 of
    the time, AVX2 on AMD Zen 4).
    """
    three = 3 * tiling.lanes
    fills_three = tiling.lanes > 1 and 2 * tiling.lanes < outputs <= three
    return three if fills_three else float_width(outputs, tiling)


def int8x4_width(
    outputs: int,
    tiling: CpuTiling,
    *,
    is_one_row: bool = False,
    by_unit: bool = False,
    is_paired: bool = False,
) -> int:
    """Return the width of a packed block of 8-bit weights, in output columns.

    Weights for a matrix unit are packed by registers: their rows are neighbours in memory, and lie
    in all banks of a second-level cache, which two registers side by side would halve.
    """
    int8x4 = tiling.int8x4
    if by_unit and int8x4 is not None and int8x4.unit is not None:
        return int8x4.unit.lanes
    if is_paired:
        return paired_width(outputs, tiling)
    if int8x4 is None or not int8x4.columns:
        return block_width(outputs, tiling)
    single = int8x4.one_row_columns or 2 * int8x4.columns
    return min(outputs, single if is_one_row else int8x4.columns)


def paired_width(outputs: int, tiling: CpuTiling) -> int:
    """Return the width of a packed block of weights that are multiplied two columns at a time.

    Six vectors share the exchange of words of two rows (``row_pairs.py``); fewer, where that leaves
    many columns of the last block empty.
    """
    widths = [vectors * tiling.lanes for vectors in (6, 5, 4, 3, 2, 1)]
    columns = {width: -(-outputs // width) * width for width in widths}
    most = outputs + outputs // _PER_EMPTY
    return next((w for w in widths if columns[w] <= most), min(widths, key=columns.__getitem__))


ColumnPart: TypeAlias = tuple[int, int, int]
"""Some blocks of columns: the first one, how many there are, and how many columns each has."""


def column_parts(outputs: int, width: int) -> tuple[ColumnPart, ...]:
    """Return the full blocks of columns, then the remainder."""
    full_blocks, remainder = divmod(outputs, width)
    parts = [(0, full_blocks, width)] if full_blocks else []
    if remainder:
        parts.append((full_blocks, 1, remainder))
    return tuple(parts)
