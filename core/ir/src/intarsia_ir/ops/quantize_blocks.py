# SPDX-License-Identifier: Apache-2.0
"""Rows of floats as bytes, with a scale for each block of neighbours."""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, TupleType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, let, parallel, seq, serial, store
from ..tir.expr import (
    BinaryOp,
    PrimExpr,
    ReduceLanes,
    cast,
    const,
    equal,
    index,
    intrinsic,
    maximum,
    select,
)
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .recurrent_loops import buffer_of, items, set_items, spread
from .type_rules import operands, shape_text

_LEVELS = 127.0
"""The largest level."""

_VECTOR = 16
"""Elements that are quantized together."""


@operator("nn.quantize_blocks", OpKind.OPAQUE)
class QuantizeBlocks(Op):
    """Rows as bytes with a scale for each block, and the sums of the bytes of blocks.

    Operand: ``[M, K]``, float32. Results: levels ``[M, K]``, int8; scales ``[M, K / block]``,
    float32; sums of levels ``[M, K / block]``, int32. The largest magnitude of a block has level
    127 or -127; ties round to even. A block of zeros has scale 0.
    """

    fixed_sizes = "all but the number of rows: blocks are counted when compiling"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``block``: neighbours with a scale, a multiple of 16."""

        block: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """``[M, K]`` and twice ``[M, K / block]``."""
        (x,) = operands(cls.name, types, 1)
        depth, block = x.shape[-1] if x.rank else 0, attrs.block
        fits = x.rank == 2 and x.dtype is DType.FLOAT32 and block > 0 and block % _VECTOR == 0
        if not fits or not isinstance(depth, int) or depth % block:
            shown = f"{x.dtype} {shape_text(x.shape)}"
            raise TypeRuleError(f"{cls.name}: {shown} has no rows of blocks of {block} floats")
        blocks = (x.shape[0], depth // block)
        levels = TensorType(x.shape, DType.INT8)
        return TupleType((levels, x.with_shape(blocks), TensorType(blocks, DType.INT32)))

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> tuple[Array, Array, Array]:
        """Round multiples of the reciprocal scale."""
        parts = x.reshape(x.shape[0], x.shape[1] // attrs.block, attrs.block)
        most = np.abs(parts).max(axis=2, initial=0, keepdims=True)
        with np.errstate(all="ignore"):
            factor = np.where(most == 0, np.float32(0), np.float32(_LEVELS) / most)
            levels = np.clip(np.nan_to_num(np.rint(parts * factor)), -128, 127).astype(np.int8)
        sums = levels.sum(axis=2, dtype=np.int32)
        return levels.reshape(x.shape), most[..., 0] * np.float32(1 / _LEVELS), sums

    @staticmethod
    def loops(attrs: Attrs, x: TensorType) -> PrimFunc:
        """Two passes over each block, by vectors of 16."""
        given = buffer_of("x", x)
        rows, depth = given.shape
        blocks, vectors = depth // attrs.block, attrs.block // _VECTOR
        levels = Buffer("levels", (rows, depth), DType.INT8)
        scales = Buffer("scales", (rows, blocks), DType.FLOAT32)
        sums = Buffer("sums", (rows, blocks), DType.INT32)
        most = Buffer("most", (_VECTOR,), DType.FLOAT32, MemoryScope.REGISTER)
        total = Buffer("total", (_VECTOR,), DType.INT32, MemoryScope.REGISTER)

        def begun(buffer: Buffer) -> Stmt:
            return set_items(buffer, index(0), spread(const(0, buffer.dtype), _VECTOR))

        def block(row: PrimExpr, b: PrimExpr) -> Stmt:
            def read(v: PrimExpr) -> PrimExpr:
                return items(given, row, b * attrs.block + v * _VECTOR, _VECTOR)

            def larger(v: PrimExpr) -> Stmt:
                size = intrinsic(Intrinsic.ABS, read(v))
                return set_items(most, index(0), maximum(items(most, 0, _VECTOR), size))

            def rounded(v: PrimExpr, factor: PrimExpr) -> Stmt:
                product = read(v) * spread(factor, _VECTOR)
                level = cast(intrinsic(Intrinsic.ROUND, product), DType.INT8)

                def kept(value: PrimExpr) -> Stmt:
                    added = items(total, 0, _VECTOR) + cast(value, DType.INT32)
                    at = b * attrs.block + v * _VECTOR
                    return seq(set_items(levels, row, at, value), set_items(total, index(0), added))

                return let(level, kept, "level")

            def scaled(size: PrimExpr) -> Stmt:
                zero = const(0.0, DType.FLOAT32)
                factor = select(equal(size, zero), zero, const(_LEVELS, DType.FLOAT32) / size)
                each = let(factor, lambda f: serial(vectors, lambda v: rounded(v, f), "v"))
                scale = store(scales, (row, b), size * const(1 / _LEVELS, DType.FLOAT32))
                return seq(scale, each)

            top = ReduceLanes(BinaryOp.MAX, items(most, 0, _VECTOR), DType.FLOAT32)
            added = ReduceLanes(BinaryOp.ADD, items(total, 0, _VECTOR), DType.INT32)
            return seq(
                *(begun(most), begun(total), serial(vectors, larger, "v")),
                *(let(top, scaled, "size"), store(sums, (row, b), added)),
            )

        def one(row: PrimExpr) -> Stmt:
            return serial(blocks, lambda b: allocate((most, total), block(row, b)), "block")

        body = parallel(index(rows), one)
        return PrimFunc("quantize_blocks", (given, levels, scales, sums), 3, body)


DERIVATIVES.refuse("rounding has the derivative 0 almost everywhere", QuantizeBlocks)
INTEGER_FORMS.refuse("its operand is real numbers", QuantizeBlocks)
