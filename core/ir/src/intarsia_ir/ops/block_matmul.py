# SPDX-License-Identifier: Apache-2.0
"""Products of float rows with weights of 4 or 8 bits that have a scale for each block along K.

A weight is ``(code - middle) * scale - shift``; ``middle`` is 8 of 4 bits and 128 of 8 bits, and
``shift`` what a block's zero point differs from it, times its scale. A decoder with one row is
bound by memory: codes are an eighth or a quarter of the bytes of floats.

Layout: a word of 32 bits has the codes of 8 or 4 neighbours along K, the first in the low bits. 16
columns lie together, a line of the cache, and lines follow each other along K. A code becomes a
float where it is in its word: with the exponent of 2**23 above it, bits from ``p`` on are
``2**23 + code * 2**p``, and one multiply-add, exact as each of its results is, makes
``code - middle`` of that. Neither a shift nor a conversion is needed but for the upper half of a
word. (IEEE 754: the last bit of a fraction of 24 bits is 1 from 2**23 to 2**24.)

Sums of a block have no scale: a scale costs one multiply-add a block, and a shift another one, with
the sum of the row's block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer
from ..tir.func import PrimFunc
from .arrays import Array
from .block_product import WORD_BITS, BlockProduct, middle_of
from .block_tiles import COLUMNS, LINE, BlockTile, in_stripes
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .recurrent_loops import buffer_of
from .type_rules import operands, shape_text

_TILES = (BlockTile(2, 2), BlockTile(1, 4))


def pack_block_words(codes: Array, bits: int) -> Array:
    """Return codes ``[N, K]``, uint8, as words ``[N / 64, 4, K * bits / 32, 16]``, int32."""
    columns, depth = codes.shape
    each = WORD_BITS // bits
    packed = codes
    if bits == 4:
        packed = codes[:, ::2] | codes[:, 1::2] << 4
    words = np.ascontiguousarray(packed).view("<i4")
    parts = words.reshape(columns // COLUMNS, COLUMNS // LINE, LINE, depth // each)
    return np.ascontiguousarray(parts.transpose(0, 1, 3, 2)).astype(np.int32)


def unpack_block_words(words: Array, bits: int) -> Array:
    """Return the codes ``[N, K]`` of words, uint8."""
    groups, _, count, _ = words.shape
    rows = np.ascontiguousarray(words.transpose(0, 1, 3, 2).astype("<i4"))
    codes = rows.view(np.uint8).reshape(groups * COLUMNS, count * 4)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
    return codes


@operator("nn.block_matmul", OpKind.OPAQUE)
class BlockMatmul(Op):
    """Product of float rows with a weight of 4 or 8 bits in blocks.

    Operands: rows ``[M, K]``, float32; codes ``[N / 64, 4, K * bits / 32, 16]``, int32
    (:func:`pack_block_words`); scales ``[N / 64, blocks, 64]``, float32; and, if a zero point is
    not in the middle of the codes, shifts of that shape, and the sums of blocks of rows
    ``[M, blocks]``. The result is ``[M, N]``, float32.
    """

    fixed_sizes = "all but the number of rows: blocks of a weight are counted when compiling"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``bits`` of a code: 4 or 8."""

        bits: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[M, N]``."""
        given = operands(cls.name, types, 3, 5)
        x, codes, scales, *more = given
        fits = attrs.bits in (4, 8) and x.rank == 2 and codes.rank == 4 and scales.rank == 3
        if fits:
            (rows, depth), blocks = x.shape, scales.shape[1]
            each = WORD_BITS // attrs.bits
            tables = (scales, *more[:1])
            fits = (
                len(more) != 1
                and isinstance(depth, int)
                and isinstance(blocks, int)
                and blocks > 0
                and depth > 0
                and depth % (each * blocks) == 0
                and codes.shape == (codes.shape[0], COLUMNS // LINE, depth // each, LINE)
                and all(one.shape == (codes.shape[0], blocks, COLUMNS) for one in tables)
                and all(one.shape == (rows, blocks) for one in more[1:])
            )
        kinds = {one.dtype for one in (x, scales, *more)}
        if not fits or kinds != {DType.FLOAT32} or codes.dtype is not DType.INT32:
            shown = ", ".join(f"{t.dtype} {shape_text(t.shape)}" for t in given)
            raise TypeRuleError(f"{cls.name}: {shown} are no rows and blocks of {attrs.bits} bits")
        return x.with_shape((x.shape[0], codes.shape[0] * COLUMNS))

    @staticmethod
    def reference(
        attrs: Attrs, x: Array, codes: Array, scales: Array, shifts: Array | None = None,
        sums: Array | None = None,
    ) -> Array:  # fmt: skip
        """Multiply with the weight in floats."""
        levels = unpack_block_words(codes, attrs.bits).astype(np.float32)
        block = x.shape[1] // scales.shape[1]

        def along(table: Array) -> Array:
            return np.repeat(table.transpose(0, 2, 1).reshape(len(levels), -1), block, axis=1)

        weight = (levels - middle_of(attrs.bits)) * along(scales)
        if shifts is not None:
            weight -= along(shifts)
        return x @ weight.T.astype(x.dtype)

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Sums of some rows and columns are in registers along the depth."""
        return BlockMatmul.tiled(_TILES, 16, attrs, *types)

    @staticmethod
    def tiled(tiles: Sequence[BlockTile], lanes: int, attrs: Attrs, *types: TensorType) -> PrimFunc:
        """The loops for vectors of ``lanes``; ``tiles`` from the most rows to one."""
        names = ("x", "codes", "scales", "shifts", "sums")
        given = [buffer_of(name, type_) for name, type_ in zip(names, types, strict=False)]
        x, codes, scales, *more = given
        out = Buffer("out", (x.shape[0], codes.shape[0] * COLUMNS), DType.FLOAT32)
        shifts, sums = more or (None, None)
        product = BlockProduct(x, codes, scales, shifts, sums, out, attrs.bits, lanes)
        body = in_stripes(x.shape[0], codes.shape[0], tiles, product.tile)
        return PrimFunc("block_matmul", (*given, out), 1, body)


DERIVATIVES.refuse("weights of 4 and 8 bits are not trained", BlockMatmul)
INTEGER_FORMS.refuse("rows are real numbers", BlockMatmul)
