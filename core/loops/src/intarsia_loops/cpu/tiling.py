# SPDX-License-Identifier: Apache-2.0
"""The parameters of a CPU: register tile, strips, panels, packed 8-bit and bfloat16 operands.

A backend describes a machine by one :class:`CpuTiling`; all schedules of this folder read it. The
register tile itself is in ``micro_kernel.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.capabilities import Memory
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import BinaryOp, IntImm, PrimExpr, binary
from intarsia_ir.tir.stmt import Stmt

from .matrix_unit import MatrixUnit
from .ordered_words import OrderedDot
from .prefetch import Prefetch


class DotMicroKernel(Protocol):
    """A backend's procedure for the inner loop of an 8-bit tile: a dot product over all of K."""

    def __call__(
        self,
        sums: Buffer,
        left: Sequence[PrimExpr],
        right: PrimExpr,
        words: PrimExpr | int,
        *,
        signed: bool,
    ) -> Stmt:
        """Return the statement; see :class:`Int8x4`."""
        ...


class Taps(Struct, frozen=True):
    """The taps of one depthwise window that lie inside the input, and how to step through them.

    Attributes:
        data: The load of the first tap's element, of the first channel.
        weight: The load of its weight.
        rows: Rows of taps; none if it is not positive.
        columns: Taps in a row.
        data_steps: Elements from a row of taps to the next one, and from a tap to its neighbour.
        weight_steps: The same of the weights.
        zero: Zero point of the data, which is subtracted from each element.
    """

    data: PrimExpr
    weight: PrimExpr
    rows: PrimExpr
    columns: int
    data_steps: tuple[int, int]
    weight_steps: tuple[int, int]
    zero: int


class DepthwiseMicroKernel(Struct, frozen=True):
    """A backend's procedure for 8-bit depthwise windows.

    Attributes:
        micro_kernel: ``micro_kernel(sums, taps)``: a statement that writes the sum of the products
            of each channel to ``sums[0, channel]``. Channels are contiguous in data and weights.
        channels: Channels of one call that suit the procedure best.
    """

    micro_kernel: Callable[[Buffer, Taps], Stmt]
    channels: int


class Int16x2(Struct, frozen=True):
    """How a backend multiplies 8-bit operands in 16 bits: two neighbours widened to a 32-bit word.

    Two products of a byte and a signed byte fit 32 bits whatever they are. Data are widened when
    they are copied to a strip or a panel; weights, when a tile loads them.

    Attributes:
        load: ``load(first)``: two unsigned bytes from ``first`` on, a load of a byte, widened.
        load_weight: ``load_weight(pair)``: the two signed bytes of ``pair``, a load of 16 bits.
        add: ``add(total, left, right)``: ``total`` plus two products (``vpmaddwd``).
        rows: Rows of a tile two vectors wide.
    """

    load: Callable[[PrimExpr], PrimExpr]
    load_weight: Callable[[PrimExpr], PrimExpr]
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    rows: int


class RowPairs(Struct, frozen=True):
    """How a backend multiplies two rows by two columns, 8 bytes of each (``row_pairs.py``).

    Attributes:
        add: ``add(total, left, right)``: ``total`` plus four sums of products.
        exchange: ``exchange(a, b, half, block)``: two vectors trade blocks of lanes; ``"low"`` are
            the even ones of both, ``"high"`` the odd ones.
        vector: ``vector(word)``: the vector of words along K from ``word`` on, a load of one, of
            which ``left_lanes`` returns lanes; ``None`` where that does.
        rows: Rows of a tile two vectors wide.
    """

    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    exchange: Callable[[PrimExpr, PrimExpr, str, int], PrimExpr]
    vector: Callable[[PrimExpr], PrimExpr | None]
    rows: int


class Int8x4(Struct, frozen=True):
    """How a backend multiplies 8-bit operands: four neighbouring bytes packed in a 32-bit word.

    Attributes:
        load: ``load(first)``: the word at the address of ``first``, a load of a byte.
        add: ``add(total, left, right)``: ``total`` plus four products, of the unsigned bytes of
            ``left`` and the signed ones of ``right`` (``vpdpbusd`` of AVX512-VNNI).
        signed: Whether ``add`` takes signed bytes of ``left``, too (``SDOT`` of NEON): data without
            sign are then moved down by 128, as data with sign are moved up otherwise.
        least_rows: Products with M below this run as default loops.
        micro_kernel: ``micro_kernel(sums, left, right, words, signed=...)``: a statement that adds
            the products along all words of K to the sums of a tile, from the first word of each
            row of data and of the weights on; ``None`` if tiles have a loop over the words.
        columns: Most columns of weights that are packed side by side; as many as of float32 if 0.
        one_row_columns: The same where data has one row, which leaves registers to more sums; twice
            as many if 0.
        depthwise: The procedure for depthwise windows; ``None`` if loops compute them.
        unit: A unit that multiplies matrices of bytes; ``None`` if the machine has none.
        add_narrow: What is faster than ``add`` for weights that
            :func:`~.int8x4.has_narrow_pairs`; ``None`` if nothing is.
        narrow_rows: Rows of a tile two vectors wide with it.
        ordered: What is faster than both for several rows of data; ``None`` if nothing is.
        int16x2: What is faster than ``add`` for several rows of data; ``None`` if nothing is.
        row_pairs: The same, which multiplies two rows at a time.
    """

    load: Callable[[PrimExpr], PrimExpr]
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    signed: bool = False
    least_rows: int = 1
    micro_kernel: DotMicroKernel | None = None
    columns: int = 0
    one_row_columns: int = 0
    depthwise: DepthwiseMicroKernel | None = None
    unit: MatrixUnit | None = None
    add_narrow: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    narrow_rows: int = 0
    ordered: OrderedDot | None = None
    int16x2: Int16x2 | None = None
    row_pairs: RowPairs | None = None


TOP_BITS = int.from_bytes(b"\x80" * 4, "little", signed=True)
"""Of the bytes of a word."""


class OffsetDot(Struct, frozen=True):
    """Products of bytes on the left that are moved up or down by 128, which flips a bit each."""

    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]

    def __call__(self, total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return self.add(total, binary(BinaryOp.XOR, left, IntImm(TOP_BITS, left.dtype)), right)


class Bf16x2(Struct, frozen=True):
    """How a backend multiplies bfloat16 operands: two neighbours packed in a 32-bit word.

    Attributes:
        load: ``load(first)``: the word at the address of ``first``, a load of a bfloat16.
        unit: The unit that multiplies matrices of them.
    """

    load: Callable[[PrimExpr], PrimExpr]
    unit: MatrixUnit


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
        micro_kernel: ``micro_kernel(sums, left, right, steps)``: replaces the inner loop of a tile.
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
        transpose_registers: ``transpose_registers(rows, write)`` transposes a square of vectors,
            one a row, and has ``write(i, column)`` store column ``i``; ``None`` if it cannot.
    """

    lanes: int
    rows: int
    strip_bytes: int = 224 * 1024
    prefetch: Prefetch | None = None
    int8x4: Int8x4 | None = None
    bf16x2: Bf16x2 | None = None
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    micro_kernel: Callable[[Buffer, Sequence[PrimExpr], PrimExpr, PrimExpr | int], Stmt] | None = (
        None
    )
    unit: MatrixUnit | None = None
    tile_columns: int = 0
    panel_bytes: int = 192 * 1024
    copies_rows: bool | None = None
    neighbours: int = 8
    deinterleave: Callable[[PrimExpr, PrimExpr, int], PrimExpr] | None = None
    left_lanes: Callable[[PrimExpr, int], PrimExpr | None] | None = None
    row_pairs: RowPairs | None = None
    transpose_registers: (
        Callable[[Sequence[PrimExpr], Callable[[int, PrimExpr], Stmt]], Stmt] | None
    ) = None

    def rows_for(self, vectors: int) -> int:
        """Return the rows of a tile ``vectors`` wide.

        ``registers_of(rows_for(v), v)`` is at most ``2 * rows + 4``: the registers of the tile two
        vectors wide and one more.
        """
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


def bf16x2_width(tiling: CpuTiling) -> int:
    """Return the width of a packed block of bfloat16 weights: a register of the matrix unit."""
    assert tiling.bf16x2 is not None
    return tiling.bf16x2.unit.lanes


def int8x4_width(
    outputs: int, tiling: CpuTiling, *, is_one_row: bool = False, by_unit: bool = False
) -> int:
    """Return the width of a packed block of 8-bit weights, in output columns.

    Weights for a matrix unit are packed by registers: their rows are neighbours in memory, and lie
    in all banks of a second-level cache, which two registers side by side would halve.
    """
    int8x4 = tiling.int8x4
    if by_unit and int8x4 is not None and int8x4.unit is not None:
        return int8x4.unit.lanes
    if int8x4 is None or not int8x4.columns:
        return block_width(outputs, tiling)
    single = int8x4.one_row_columns or 2 * int8x4.columns
    return min(outputs, single if is_one_row else int8x4.columns)


def column_parts(outputs: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """Return ``(first block, blocks, used columns)``: the full blocks, then the remainder."""
    full_blocks, remainder = divmod(outputs, width)
    parts = [(0, full_blocks, width)] if full_blocks else []
    if remainder:
        parts.append((full_blocks, 1, remainder))
    return tuple(parts)
