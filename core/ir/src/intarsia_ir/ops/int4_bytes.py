# SPDX-License-Identifier: Apache-2.0
"""Products of rows in 8 bits with weights of 4 bits, both with a scale for each block along K.

``nn.quantize_blocks`` makes bytes of rows; ``nn.int4_byte_matmul`` multiplies them in integers::

    sum over blocks of (sum(code * level) - zero * sum(level)) * scale of weight * scale of row

The sum of the levels of a block is that of the row, whatever the column is: a zero point costs no
operation along K. ONNX Runtime computes ``MatMulNBits`` with ``accuracy_level`` 4 in this way.

Layout: a word of 32 bits has the codes of 8 neighbours along K: byte ``i`` that of ``i`` in its low
bits, and that of ``4 + i`` in its high bits. A mask gives four bytes for an instruction that adds
four products up (``vpdpbusd``), a shift and the mask the next four. 64 columns lie together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, let, lets, load, seq, serial, unrolled
from ..tir.expr import (
    BinaryOp,
    PrimExpr,
    TirVar,
    binary,
    cast,
    const,
    index,
)
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from .arrays import Array
from .block_tiles import COLUMNS, BlockTile, in_parts, in_stripes
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .recurrent_loops import buffer_of, items, set_items, spread
from .type_rules import operands, shape_text

CODES_PER_WORD = 8
"""Codes of a word, neighbours along K."""

_SHORT = 4
"""Words of a block up to which their loop is written out."""


def pack_int4_words(codes: Array) -> Array:
    """Return codes ``[N, K]``, ``N`` a multiple of 64, as words ``[N / 64, K / 8, 64]``, int32."""
    columns, depth = codes.shape
    parts = codes.reshape(columns // COLUMNS, COLUMNS, depth // CODES_PER_WORD, 2, 4)
    packed = (parts[..., 0, :] | parts[..., 1, :] << 4).astype(np.uint8)
    words = np.ascontiguousarray(packed.transpose(0, 2, 1, 3)).view("<i4")
    return words[..., 0].astype(np.int32)


def unpack_int4_words(words: Array) -> Array:
    """Return the codes ``[N, K]`` of words, uint8."""
    groups, count, _ = words.shape
    packed = words.astype("<i4")[..., None].view(np.uint8)
    parts = np.stack([packed & 15, packed >> 4], axis=3)
    return parts.transpose(0, 2, 1, 3, 4).reshape(groups * COLUMNS, count * CODES_PER_WORD)


class NibbleDot(Struct, frozen=True):
    """How a machine multiplies the codes of words.

    Attributes:
        lanes: Columns of a vector.
        split: Returns vectors of codes of a vector of words.
        read: From ``level(i)``, the load of level ``i`` of 8, what the vectors are multiplied with.
        add: ``add(total, codes, levels)``: ``total`` plus all products.
    """

    lanes: int
    split: Callable[[PrimExpr], Sequence[PrimExpr]]
    read: Callable[[Callable[[int], PrimExpr]], Sequence[PrimExpr]]
    add: Callable[[PrimExpr, Sequence[PrimExpr], Sequence[PrimExpr]], PrimExpr]


def _split(word: PrimExpr) -> list[PrimExpr]:
    """Return each code of words in 32 bits."""
    places = [8 * (n % 4) + 4 * (n // 4) for n in range(CODES_PER_WORD)]
    mask = spread(const(15, DType.INT32), word.lanes)
    shifts = [spread(const(place, DType.INT32), word.lanes) for place in places]
    return [binary(BinaryOp.AND, binary(BinaryOp.SHR, word, by), mask) for by in shifts]


def _read(level: Callable[[int], PrimExpr]) -> list[PrimExpr]:
    return [cast(level(n), DType.INT32) for n in range(CODES_PER_WORD)]


def _add(total: PrimExpr, codes: Sequence[PrimExpr], levels: Sequence[PrimExpr]) -> PrimExpr:
    for code, level in zip(codes, levels, strict=True):
        total = total + code * spread(level, code.lanes)
    return total


PLAIN_DOT = NibbleDot(16, _split, _read, _add)
"""For a machine without such instructions."""

_PLAIN_TILES = (BlockTile(2, 1), BlockTile(1, 1))


@operator("nn.int4_byte_matmul", OpKind.OPAQUE)
class Int4ByteMatmul(Op):
    """Product of rows of bytes with a weight of 4 bits, both in blocks.

    Operands: levels ``[M, K]``, int8; scales and sums of blocks of rows, ``[M, blocks]``, float32
    and int32; codes ``[N / 64, K / 8, 64]``, int32 (:func:`pack_int4_words`); scales of the weight
    ``[N / 64, blocks, 64]``, float32; and, if they differ, zero points of that shape, uint8. The
    result is ``[M, N]``, float32.
    """

    fixed_sizes = "all but the number of rows: blocks of a weight are counted when compiling"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``zero``: the zero point of all blocks where no operand has them."""

        zero: int = 8

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[M, N]``."""
        given = operands(cls.name, types, 5, 6)
        levels, row_scales, row_sums, codes, scales, *zeros = given
        fits = levels.rank == row_scales.rank == 2 and codes.rank == scales.rank == 3
        if fits:
            (rows, depth), blocks, groups = levels.shape, scales.shape[1], codes.shape[0]
            fits = (
                isinstance(depth, int)
                and isinstance(blocks, int)
                and blocks > 0
                and depth > 0
                and depth % (CODES_PER_WORD * blocks) == 0
                and row_scales.shape == row_sums.shape == (rows, blocks)
                and codes.shape == (groups, depth // CODES_PER_WORD, COLUMNS)
                and all(each.shape == (groups, blocks, COLUMNS) for each in (scales, *zeros))
            )
        kinds = tuple(each.dtype for each in given)
        wanted = (DType.INT8, DType.FLOAT32, DType.INT32, DType.INT32, DType.FLOAT32, DType.UINT8)
        if not fits or kinds != wanted[: len(kinds)]:
            shown = ", ".join(f"{t.dtype} {shape_text(t.shape)}" for t in given)
            raise TypeRuleError(f"{cls.name}: {shown} are no rows of bytes and blocks of 4 bits")
        return TensorType((levels.shape[0], codes.shape[0] * COLUMNS), DType.FLOAT32)

    @staticmethod
    def reference(
        attrs: Attrs, levels: Array, row_scales: Array, row_sums: Array, codes: Array,
        scales: Array, zeros: Array | None = None,
    ) -> Array:  # fmt: skip
        """Multiply the integers of each block, and add floats up."""
        weight = unpack_int4_words(codes)
        (columns, depth), blocks = weight.shape, scales.shape[1]
        weight = weight.reshape(columns, blocks, depth // blocks).astype(np.int32)
        rows = levels.reshape(levels.shape[0], blocks, depth // blocks).astype(np.int32)

        def by_block(table: Array) -> Array:
            return table.transpose(1, 0, 2).reshape(blocks, columns)

        zero = attrs.zero if zeros is None else by_block(zeros).astype(np.int32)
        totals = np.einsum("mbk,nbk->mbn", rows, weight) - row_sums[..., None] * zero
        factors = row_scales[..., None] * by_block(scales)
        return (totals.astype(np.float32) * factors).sum(axis=1, dtype=np.float32)

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Each code in 32 bits, which any machine multiplies."""
        return Int4ByteMatmul.tiled(_PLAIN_TILES, PLAIN_DOT, attrs, *types)

    @staticmethod
    def tiled(
        tiles: Sequence[BlockTile], dot: NibbleDot, attrs: Attrs, *types: TensorType
    ) -> PrimFunc:
        """The loops for a machine; ``tiles`` from the most rows to one."""
        names = ("levels", "row_scales", "row_sums", "codes", "scales", "zeros")
        given = [buffer_of(name, each) for name, each in zip(names, types, strict=False)]
        count, stripes = given[0].shape[0], given[3].shape[0]
        out = Buffer("out", (count, stripes * COLUMNS), DType.FLOAT32)
        levels, row_scales, row_sums, codes, scales, *rest = given
        zeros = rest[0] if rest else None
        product = _Product(levels, row_scales, row_sums, codes, scales, zeros, attrs.zero, out, dot)

        body = in_stripes(count, stripes, tiles, product.tile)
        return PrimFunc("int4_byte_matmul", (*given, out), 1, body)


class _Product(Struct, frozen=True):
    """The buffers of a product."""

    levels: Buffer
    row_scales: Buffer
    row_sums: Buffer
    codes: Buffer
    scales: Buffer
    zeros: Buffer | None
    zero: int
    out: Buffer
    dot: NibbleDot

    def tile(self, number: PrimExpr, rows: Sequence[PrimExpr], vectors: int) -> Stmt:
        """Compute some rows of 64 columns, ``vectors`` of them at a time."""
        return in_parts(vectors, self.dot.lanes, partial(self._sums, number, rows))

    def _sums(
        self, number: PrimExpr, rows: Sequence[PrimExpr], columns: Sequence[PrimExpr]
    ) -> Stmt:
        """Add the products of rows with some columns up, and store them."""
        lanes, blocks = self.dot.lanes, self.scales.shape[1]
        sums, totals = (
            [
                [
                    Buffer(f"{name}{r}_{v}", (lanes,), dtype, MemoryScope.REGISTER)
                    for v in range(len(columns))
                ]
                for r in range(len(rows))
            ]
            for name, dtype in (("sum", DType.FLOAT32), ("total", DType.INT32))
        )

        def of_block(b: PrimExpr) -> Stmt:
            parts = [self._begun(number, b, rows, columns, totals)]
            words = self.levels.shape[1] // blocks // CODES_PER_WORD

            def word(at: PrimExpr) -> Stmt:
                return self._added(number, b * words + at, rows, columns, totals)

            loop = unrolled if words <= _SHORT else serial
            parts.append(loop(words, word, "word"))
            for v, column in enumerate(columns):
                scale = items(self.scales, number, b, column, lanes)
                parts.append(let(scale, lambda s, v=v: self._scaled(b, rows, v, s, sums, totals)))
            return seq(*parts)

        zero = spread(const(0.0, DType.FLOAT32), lanes)
        begin = [set_items(buffer, index(0), zero) for own in sums for buffer in own]
        ends = [
            set_items(self.out, row, number * COLUMNS + column, items(buffer, index(0), lanes))
            for row, own in zip(rows, sums, strict=True)
            for column, buffer in zip(columns, own, strict=True)
        ]
        flat = [buffer for own in (*sums, *totals) for buffer in own]
        return allocate(flat, seq(*begin, serial(blocks, of_block, "block"), *ends))

    def _begun(
        self, number: PrimExpr, b: PrimExpr, rows: Sequence[PrimExpr],
        columns: Sequence[PrimExpr], totals: Sequence[Sequence[Buffer]],
    ) -> Stmt:  # fmt: skip
        """Begin sums of a block with what its zero points take from them."""
        lanes, parts = self.dot.lanes, list[Stmt]()
        if self.zeros is None:
            for row, own in zip(rows, totals, strict=True):
                share = load(self.row_sums, row, b) * -self.zero
                parts += [set_items(total, index(0), spread(share, lanes)) for total in own]
            return seq(*parts)
        for v, column in enumerate(columns):
            zero = cast(items(self.zeros, number, b, column, lanes), DType.INT32)

            def begun(zero: PrimExpr, v: int = v) -> Stmt:
                shares = [spread(0 - load(self.row_sums, row, b), lanes) for row in rows]
                return seq(
                    *(
                        set_items(own[v], index(0), share * zero)
                        for own, share in zip(totals, shares, strict=True)
                    )
                )

            parts.append(let(zero, begun, f"zero{v}"))
        return seq(*parts)

    def _added(
        self, number: PrimExpr, word: PrimExpr, rows: Sequence[PrimExpr],
        columns: Sequence[PrimExpr], totals: Sequence[Sequence[Buffer]],
    ) -> Stmt:  # fmt: skip
        """Add the products of 8 neighbours along K."""
        lanes, dot = self.dot.lanes, self.dot
        read = [items(self.codes, number, word, column, lanes) for column in columns]
        words = [TirVar(f"word{v}", each.dtype, lanes) for v, each in enumerate(read)]
        codes = [dot.split(each) for each in words]
        names = [[TirVar(f"code{v}_{n}", c.dtype, lanes) for n, c in enumerate(own)]
                 for v, own in enumerate(codes)]  # fmt: skip

        def of_row(row: PrimExpr, own: Sequence[Buffer]) -> Stmt:
            def level(n: int) -> PrimExpr:
                return load(self.levels, row, word * CODES_PER_WORD + n)

            read = dot.read(level)
            levels = [TirVar(f"level{n}", each.dtype) for n, each in enumerate(read)]
            added = [
                set_items(total, index(0), dot.add(items(total, index(0), lanes), parts, levels))
                for total, parts in zip(own, names, strict=True)
            ]
            return lets(levels, read, seq(*added))

        body = seq(*(of_row(row, own) for row, own in zip(rows, totals, strict=True)))
        for own_names, own_codes in zip(names, codes, strict=True):
            body = lets(own_names, own_codes, body)
        return lets(words, read, body)

    def _scaled(
        self, b: PrimExpr, rows: Sequence[PrimExpr], v: int, scale: PrimExpr,
        sums: Sequence[Sequence[Buffer]], totals: Sequence[Sequence[Buffer]],
    ) -> Stmt:  # fmt: skip
        """Add the sums of a block, with both scales, to those of all blocks."""
        lanes, parts = self.dot.lanes, list[Stmt]()
        for row, own, total in zip(rows, sums, totals, strict=True):
            factor = scale * spread(load(self.row_scales, row, b), lanes)
            exact = cast(items(total[v], index(0), lanes), DType.FLOAT32)
            before = items(own[v], index(0), lanes)
            parts.append(set_items(own[v], index(0), before + exact * factor))
        return seq(*parts)


DERIVATIVES.refuse("weights of 4 bits are not trained", Int4ByteMatmul)
INTEGER_FORMS.refuse("its result is real numbers", Int4ByteMatmul)
