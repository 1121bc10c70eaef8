# SPDX-License-Identifier: Apache-2.0
"""Products with weights of 4 bits that have a scale and a zero point for each block.

A weight is ``code * scale - shift``, where ``shift`` is its block's zero point times its scale. A
decoder with one row is bound by memory: codes are an eighth of the bytes of floats. They become
floats in registers, once for all rows of a tile, so that products of many rows are not slower.

Layout: 64 columns lie together, a cache line of codes for two of the depth. A byte has the even one
in its low bits. llama.cpp and MLAS lay blocks of 4 bits out for vectors of columns the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, lets, load, parallel, seq, serial
from ..tir.expr import (
    BinaryOp,
    Broadcast,
    IntImm,
    PrimExpr,
    TirVar,
    binary,
    cast,
    const,
    index,
    maximum,
    minimum,
)
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .recurrent_loops import buffer_of, items, set_items, spread
from .type_rules import operands, shape_text

COLUMNS = 64
"""Columns of the result whose codes lie together."""

_WIDTH = 16


class Int4Tile(Struct, frozen=True):
    """Most rows of a tile, and sums of 16 columns that are in registers together.

    16 accumulators and 4 weights, with 4 rows, take 20 of 32 zmm; scales and shifts have the rest.
    4 accumulators, each of two ymm, take 8 of 16. Tiles of fewer rows have more columns. On Zen 5
    4 rows reach 100e9 multiply-adds a second, 8 rows with half of the columns 64e9.
    """

    rows: int = 4
    accumulators: int = 4


@operator("nn.int4_matmul", OpKind.OPAQUE)
class Int4Matmul(Op):
    """Product of float rows with a weight of 4 bits in blocks.

    Operands: rows ``[M, K]``, float32; codes ``[N / 64, K / 2, 64]``, uint8; and scales and shifts
    ``[N / 64, K / block, 64]``, float32. The result is ``[M, N]``. A weight is
    ``code * scale - shift``; a byte holds the codes of two neighbours in K, the first in its low
    bits.
    """

    fixed_sizes = "all but the number of rows: blocks of a weight are counted when compiling"

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """``[M, N]``."""
        x, codes, scales, shifts = operands(cls.name, types, 4)
        fits = x.rank == 2 and codes.rank == scales.rank == 3 and scales == shifts
        if fits:
            depth, blocks = x.shape[1], scales.shape[1]
            fits = (
                isinstance(depth, int)
                and isinstance(blocks, int)
                and blocks > 0
                and depth > 0
                and depth % (2 * blocks) == 0
                and codes.shape == (scales.shape[0], depth // 2, COLUMNS)
                and scales.shape[2] == COLUMNS
            )
        kinds = (x.dtype, codes.dtype, scales.dtype)
        if not fits or kinds != (DType.FLOAT32, DType.UINT8, DType.FLOAT32):
            shown = ", ".join(
                f"{t.dtype} {shape_text(t.shape)}" for t in (x, codes, scales, shifts)
            )
            raise TypeRuleError(f"{cls.name}: {shown} are no rows and blocks of 4 bits")
        return x.with_shape((x.shape[0], codes.shape[0] * COLUMNS))

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, codes: Array, scales: Array, shifts: Array) -> Array:
        """Multiply with the weight in floats."""
        groups, half, _ = codes.shape
        levels = np.stack([codes & 15, codes >> 4], axis=2).reshape(groups, 2 * half, COLUMNS)
        block = 2 * half // scales.shape[1]
        weight = levels * np.repeat(scales, block, axis=1) - np.repeat(shifts, block, axis=1)
        return x @ weight.transpose(1, 0, 2).reshape(2 * half, -1).astype(x.dtype)

    @staticmethod
    def loops(attrs: OpAttrs, *types: TensorType) -> PrimFunc:
        """Sums of some rows and columns are in registers along the depth."""
        return Int4Matmul.tiled(Int4Tile(), *types)

    @staticmethod
    def tiled(tile: Int4Tile, *types: TensorType) -> PrimFunc:
        """The loops for a tile of registers."""
        names = ("x", "codes", "scales", "shifts")
        x, codes, scales, shifts = (
            buffer_of(name, type_) for name, type_ in zip(names, types, strict=True)
        )
        count, stripes = x.shape[0], codes.shape[0]
        out = Buffer("out", (count, stripes * COLUMNS), DType.FLOAT32)
        product = _Product(x, codes, scales, shifts, out)

        def block(number: PrimExpr) -> Stmt:
            parts: list[Stmt] = []
            left, done, size = index(count), index(0), tile.rows
            while size:
                # Tiles that lack less than half of their rows compute the last one again.
                tiles = (left + max(size // 2 - 1, 0)) // size
                groups = min(tile.accumulators // (size * _halves(size)), COLUMNS // _WIDTH)

                def rows(
                    at: PrimExpr, size: int = size, done: PrimExpr = done, groups: int = groups
                ) -> Stmt:
                    first, last = done + at * size, index(count) - 1
                    chosen = [
                        minimum(first + n, last) if size > 2 else first + n for n in range(size)
                    ]
                    return product.tile(number, chosen, groups)

                parts.append(serial(tiles, rows, "rows"))
                done, left = done + tiles * size, maximum(left - tiles * size, 0)
                size //= 2
            return seq(*parts)

        body = parallel(stripes, block, "columns")
        return PrimFunc("int4_matmul", (x, codes, scales, shifts, out), 1, body)


class _Product(Struct, frozen=True):
    """The buffers of a product."""

    x: Buffer
    codes: Buffer
    scales: Buffer
    shifts: Buffer
    out: Buffer

    def tile(self, number: PrimExpr, rows: Sequence[PrimExpr], groups: int) -> Stmt:
        """Compute some rows of 64 columns, ``groups`` of 16 at a time."""
        names = [TirVar(f"row{n}", row.dtype) for n, row in enumerate(rows)]

        def part(at: PrimExpr) -> Stmt:
            first = at * (groups * _WIDTH)
            return self.sums(number, names, [first + g * _WIDTH for g in range(groups)])

        return lets(names, rows, serial(COLUMNS // (groups * _WIDTH), part, "part"))

    def sums(self, number: PrimExpr, rows: Sequence[PrimExpr], columns: Sequence[PrimExpr]) -> Stmt:
        """Add the products of rows with some columns up, and store them."""
        halves = _halves(len(rows))
        totals = [
            [
                [
                    Buffer(f"sum{g}", (_WIDTH,), DType.FLOAT32, MemoryScope.REGISTER)
                    for _ in range(halves)
                ]
                for g in range(len(columns))
            ]
            for _ in rows
        ]
        flat = [buffer for row in totals for group in row for buffer in group]
        blocks, depth = self.scales.shape[1], self.x.shape[1]
        block = depth // blocks

        def of_block(b: PrimExpr) -> Stmt:
            factors = [TirVar(f"scale{g}", DType.FLOAT32, _WIDTH) for g in range(len(columns))]
            offsets = [TirVar(f"shift{g}", DType.FLOAT32, _WIDTH) for g in range(len(columns))]

            def pair(at: PrimExpr) -> Stmt:
                place = b * (block // 2) + at
                parts: list[Stmt] = []
                for g, column in enumerate(columns):
                    code = TirVar(f"code{g}", DType.INT32, _WIDTH)
                    read = cast(items(self.codes, number, place, column, _WIDTH), DType.INT32)
                    added = [
                        self._add(
                            (nibble(code, half) * factors[g] - offsets[g]),
                            [load(self.x, row, place * 2 + half) for row in rows],
                            [row[g][half % halves] for row in totals],
                        )
                        for half in range(2)
                    ]
                    parts.append(lets((code,), (read,), seq(*added)))
                return seq(*parts)

            values = [
                items(buffer, number, b, column, _WIDTH)
                for buffer in (self.scales, self.shifts)
                for column in columns
            ]
            return lets([*factors, *offsets], values, serial(block // 2, pair, "pair"))

        zero = spread(const(0.0, DType.FLOAT32), _WIDTH)
        begin = [set_items(buffer, index(0), zero) for buffer in flat]
        stores: list[Stmt] = []
        for row, own in zip(rows, totals, strict=True):
            for column, group in zip(columns, own, strict=True):
                parts = [items(buffer, index(0), _WIDTH) for buffer in group]
                total = parts[0] if halves == 1 else parts[0] + parts[1]
                stores.append(set_items(self.out, row, number * COLUMNS + column, total))
        return allocate(flat, seq(*begin, serial(blocks, of_block, "block"), *stores))

    @staticmethod
    def _add(weight: PrimExpr, elements: Sequence[PrimExpr], totals: Sequence[Buffer]) -> Stmt:
        value = TirVar("weight", DType.FLOAT32, _WIDTH)
        added = [
            set_items(
                total, index(0), items(total, index(0), _WIDTH) + spread(element, _WIDTH) * value
            )
            for element, total in zip(elements, totals, strict=True)
        ]
        return lets((value,), (weight,), seq(*added))


def _halves(rows: int) -> int:
    """Few rows have sums of even and of odd K apart, so that additions wait less."""
    return 2 if rows <= 2 else 1


def nibble(code: PrimExpr, half: int) -> PrimExpr:
    """Return the low or the high 4 bits of bytes, as floats."""
    four, mask = (Broadcast(IntImm(n, DType.INT32), _WIDTH, DType.INT32) for n in (4, 15))
    bits = binary(BinaryOp.SHR, code, four) if half else binary(BinaryOp.AND, code, mask)
    return cast(bits, DType.FLOAT32)


DERIVATIVES.refuse("weights of 4 bits are not trained", Int4Matmul)
INTEGER_FORMS.refuse("rows are real numbers", Int4Matmul)
