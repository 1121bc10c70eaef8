# SPDX-License-Identifier: Apache-2.0
"""Dynamically quantized LSTM: the state is quantized in every step, the weight is int8.

``DynamicQuantizeLSTM`` of ONNX Runtime's quantizer. A step multiplies a vector of ``hidden`` bytes
by a matrix ``[hidden, 4 * hidden]``.

- Caches: with 256 columns of state the matrix has 262 144 bytes and is read from the second-level
  cache in every step, so the loops are laid out for streaming.
- Layout: a word has four rows of a column (Int8x4), and the words of a panel of 64 columns are
  contiguous: the hardware prefetcher follows, and one load of 64 bytes feeds one ``vpdpbusd``.
- Registers: a single row keeps 8 accumulators, of two panels, because 4 would wait for the latency
  of 4 cycles. Several rows share each load of the weight.

The state is unsigned, ``level = round(h / scale) + zero``. The zero point adds ``zero *
sums[column]`` to a sum, an integer below 2^31 for up to 65 536 columns; it is subtracted before the
sum becomes a float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, call, constant
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops.recurrent import Lstm, lstm_loops
from intarsia_ir.ops.recurrent_loops import Layer, Update, items, set_items, spread
from intarsia_ir.ops.recurrent_quantized import round_state, update_all
from intarsia_ir.ops.recurrent_rows import Group, Rows, RowTile
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, lets, load, seq, serial, store
from intarsia_ir.tir.expr import (
    BinaryOp,
    CallTarget,
    Load,
    PrimExpr,
    TirVar,
    binary,
    cast,
    const,
    index,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Stmt
from intarsia_runtime.dtype import DType

from .int8x4 import dot4_by_shifts, pack_int8x4_dense
from .packing import INT8_PER_WORD, unpack_dense, unpack_int8x4
from .tiling import CpuTiling

Array = np.ndarray

PANEL_VECTORS = 4
"""Vectors of sums that a panel of the weight is wide."""


class ByteDot(Struct, frozen=True):
    """How a machine multiplies bytes four at a time (see :class:`~.packed_operands.Int8x4`).

    Attributes:
        word: Returns the four bytes at the place of the first, a load.
        add: Adds four products of unsigned and signed bytes to each element of a vector.
        lanes: Elements of a vector of sums.
    """

    word: Callable[[PrimExpr], PrimExpr]
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    lanes: int


def byte_lstm(node: Call, args: Sequence[Expr], tiling: CpuTiling) -> Expr | None:
    """Return ``cpu.qlstm`` for an LSTM with rounded states; ``None`` if its weight is none for it.

    Args:
        node: ``nn.lstm``.
        args: Its operands as they are now.
        tiling: What the machine has; one that cannot multiply unsigned bytes takes none.
    """
    int8x4 = tiling.int8x4
    if int8x4 is None or int8x4.add is dot4_by_shifts or int8x4.signed:
        return None
    attrs, weight = node.attrs, args[3]
    if not isinstance(attrs, Lstm.Attrs) or not attrs.quantize_state or not attrs.has_plain_gates:
        return None
    if not isinstance(weight, Constant) or weight.type.dtype is not DType.INT8:
        return None
    hidden, width = weight.data.shape
    panel = PANEL_VECTORS * tiling.lanes
    if hidden % INT8_PER_WORD or width % panel:
        return None
    packed = constant(pack_int8x4_dense(weight.data, panel), span=node.span)
    sums = constant(weight.data.astype(np.int32).sum(axis=0, dtype=np.int32), span=node.span)
    own = ByteLstm.Attrs(reverse=attrs.reverse)
    return call(ByteLstm, *args[:3], packed, args[4], sums, attrs=own, span=node.span)


@operator("cpu.qlstm", OpKind.OPAQUE)
class ByteLstm(Op):
    """``nn.lstm`` with ``quantize_state`` and a weight packed in words.

    Operands: inputs' part of the gates ``[steps, batch, 4 * hidden]``; first state and cell
    ``[batch, hidden]``; the weight ``[panels, hidden / 4, width]``, int32; the scale of each column
    and the sum of its bytes, int32, ``[4 * hidden]``. Results: as of ``nn.lstm``.
    """

    fixed_sizes = "the last of every operand: rows of the weight are read by vectors"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``reverse``: from the last step to the first."""

        reverse: bool = False

    @staticmethod
    def type_rule(attrs: Attrs, x: TensorType, h: TensorType, *_rest: TensorType) -> TupleType:
        """States of all steps, the last state and the last cell."""
        return TupleType((x.with_shape((*x.shape[:2], h.shape[1])), h, h))

    @staticmethod
    def reference(
        attrs: Attrs, x: Array, h: Array, c: Array, packed: Array, scale: Array, _sums: Array
    ) -> tuple[Array, Array, Array]:
        """The canonical layer with the weight as it was."""
        weight = unpack_dense(unpack_int8x4(packed), len(scale))
        own = Lstm.Attrs(reverse=attrs.reverse, quantize_state=True)
        return Lstm.reference(own, x, h, c, weight, scale)

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Loops for a machine without such instructions."""
        return ByteLstm.tiled(RowTile(), ByteDot(_word, dot4_by_shifts, 1), attrs, *types)

    @staticmethod
    def tiled(tile: RowTile, dot: ByteDot, attrs: Attrs, *types: TensorType) -> PrimFunc:
        """The loops for a machine."""

        def step(layer: Layer, at: PrimExpr, group: Group, update: Update) -> Stmt:
            return _Step(layer, dot, at, group).stmt(update)

        return lstm_loops("byte_lstm", types, step, tile, Lstm.Attrs(reverse=attrs.reverse))


def _word(first: PrimExpr) -> PrimExpr:
    """The four bytes at the place of the first, a load."""
    assert isinstance(first, Load)
    *outer, at = first.indices
    word = cast(first, DType.INT32)
    for number in range(1, INT8_PER_WORD):
        byte = cast(load(first.buffer, *outer, at + number), DType.INT32)
        word = binary(BinaryOp.OR, word, byte * (1 << 8 * number))
    return word


class _Step(Struct, frozen=True):
    layer: Layer
    dot: ByteDot
    at: PrimExpr
    group: Group

    def stmt(self, update: Update) -> Stmt:
        """Round the states, multiply, and do ``update`` with the gates."""
        most, hidden = self.group.most, self.layer.hidden
        levels = Buffer("levels", (most, hidden), DType.UINT8, MemoryScope.STACK)
        totals = Buffer("totals", (most, 4 * hidden), DType.FLOAT32, MemoryScope.STACK)
        factors = Buffer("factors", (most,), DType.FLOAT32, MemoryScope.STACK)
        zeros = Buffer("zeros", (most,), DType.INT32, MemoryScope.STACK)

        def round_row(row: PrimExpr) -> Stmt:
            place = self.group.place(row)

            def write(j: PrimExpr, level: PrimExpr, _zero: PrimExpr) -> Stmt:
                return set_items(levels, place, j, cast(level, DType.UINT8))

            def keep(scale: PrimExpr, zero: PrimExpr) -> Stmt:
                kept = store(zeros, (place,), cast(zero, DType.INT32))
                return seq(store(factors, (place,), scale), kept)

            return round_state(self.layer, row, keep, write)

        multiply = partial(self._products, levels, (factors, zeros, totals))
        updated = update_all(self.layer, self.group, totals, update)
        body = seq(self.group.rows(round_row), self.group.tiles(multiply), updated)
        return allocate([levels, totals, factors, zeros], body)

    def _products(self, levels: Buffer, results: tuple[Buffer, Buffer, Buffer], rows: Rows) -> Stmt:
        """Multiply the rows with the whole weight."""
        panels = self.layer.weight.shape[0]
        together = 2 if len(rows) == 1 else 1
        parts: list[Stmt] = []
        done = 0
        for size in dict.fromkeys((together, 1)):
            number = (panels - done) // size
            if number:
                own = partial(self._panels, rows, levels, results, done, size)
                parts.append(serial(number, own, "panel"))
            done += number * size
        return seq(*parts)

    def _panels(
        self,
        rows: Rows,
        levels: Buffer,
        results: tuple[Buffer, Buffer, Buffer],
        first: int,
        size: int,
        number: PrimExpr,
    ) -> Stmt:
        """Multiply the rows with ``size`` panels of the weight."""
        factors, zeros, totals = results
        weight, lanes = self.layer.weight, self.dot.lanes
        _, words, width = weight.shape
        vectors = [(p, v) for p in range(size) for v in range(width // lanes)]
        sums = [
            [
                Buffer(f"sum{row}_{n}", (lanes,), DType.INT32, MemoryScope.REGISTER)
                for n in range(len(vectors))
            ]
            for row in range(len(rows))
        ]
        panel = number * size + first
        places = [self.group.place(row) for row in rows]

        def one(k: PrimExpr) -> Stmt:
            states = [TirVar(f"state{row}", DType.INT32) for row in range(len(rows))]
            read = [self.dot.word(load(levels, place, k * INT8_PER_WORD)) for place in places]
            parts: list[Stmt] = []
            for n, (p, v) in enumerate(vectors):
                column = TirVar(f"column{n}", DType.INT32, lanes)
                taken = items(weight, panel + p, k, index(v * lanes), lanes)
                added = [
                    set_items(own[n], index(0), self._added(own[n], state, column))
                    for own, state in zip(sums, states, strict=True)
                ]
                parts.append(lets((column,), (taken,), seq(*added)))
            return lets(states, read, seq(*parts))

        def end(row: int, n: int) -> Stmt:
            p, v = vectors[n]
            at = (panel + p) * width + v * lanes
            zero = spread(load(zeros, places[row]), lanes)
            share = items(self.layer.given[5], at, lanes) * zero
            exact = cast(items(sums[row][n], index(0), lanes) - share, DType.FLOAT32)
            scale = items(self.layer.given[4], at, lanes) * spread(
                load(factors, places[row]), lanes
            )
            given = items(self.layer.given[0], self.at, rows[row], at, lanes)
            return set_items(totals, places[row], at, given + exact * scale)

        flat = [buffer for own in sums for buffer in own]
        blank = spread(const(0, DType.INT32), lanes)
        body = seq(
            *(set_items(buffer, index(0), blank) for buffer in flat),
            serial(words, one, "k"),
            *(end(row, n) for row in range(len(rows)) for n in range(len(vectors))),
        )
        return allocate(flat, body)

    def _added(self, total: Buffer, state: PrimExpr, column: PrimExpr) -> PrimExpr:
        """A vector of sums and the products of one word of a state with one of each column."""
        lanes = self.dot.lanes
        added = self.dot.add(items(total, index(0), lanes), spread(state, lanes), column)
        return replace(added, lanes=lanes) if isinstance(added, CallTarget) else added
