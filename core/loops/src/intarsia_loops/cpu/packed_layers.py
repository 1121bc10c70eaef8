# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in float32 whose weight lies as their loops read it.

A step multiplies a vector of ``hidden`` elements, or some of them, by a matrix ``[hidden, gates *
hidden]`` that no first-level cache holds. As the model has it, columns of a gate lie a row of all
gates apart: each load is of another page, which no hardware prefetcher follows. Packed, what a
block of columns needs of a gate is contiguous, and one gate follows the other. With 600 columns,
4.3 MB from the third-level cache, 4 rows take 185 instead of 290 us a step, and one takes 175
instead of 190 (Emerald Rapids).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from intarsia_ir.graph.expr import Call, Constant, Expr, call, constant
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops.recurrent import Gru, Lstm
from intarsia_ir.ops.recurrent_rows import RowTile
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.writing.deferred import DeferredArray
from intarsia_runtime.dtype import DType

from .byte_lstm import byte_lstm
from .tiling import CpuTiling

Array = np.ndarray

_LEAST_BYTES = 32 * 1024
"""Smaller weights stay in a first-level cache, however they lie."""

_COLUMNS = 16
"""Of each gate in a block: a cache line, which one or two vectors of a tile take."""

_GATES = {"lstm": 4, "gru": 3}
_MANY_REGISTERS = 12
"""Rows of a product's tile, two vectors wide, that only 32 vector registers hold."""
_FEW_REGISTERS = 2
"""Rows of the tile of a microcontroller, whose 32 registers hold 16 sums, 4 for each gate."""


def row_tile(tiling: CpuTiling) -> RowTile | None:
    """Return the tile of recurrent layers, see ``recurrent.py``; ``None`` without vectors."""
    tile = byte_row_tile(tiling)
    if tile is None or tile.rows == 1:
        return tile
    lanes = tiling.lanes
    if tiling.left_lanes is not None:
        return RowTile(4, 4 * lanes, 16 * lanes, 2 * lanes, lanes, tiling.left_lanes)
    if tile.joins:
        return tile
    return RowTile(4, 2 * lanes, 10 * lanes, lanes=lanes if tiling.vector_types else 2 * lanes)


def byte_row_tile(tiling: CpuTiling) -> RowTile | None:
    """Return the tile of layers whose states are rounded, a row of which is much code."""
    if tiling.lanes not in (4, 8, 16):
        return None
    if tiling.rows <= _FEW_REGISTERS:
        return RowTile(1, tiling.lanes)
    has_many = tiling.rows >= _MANY_REGISTERS or tiling.lanes == _COLUMNS
    rows = 4 if has_many else 2
    return RowTile(rows, tiling.lanes, 4 * (rows + has_many) * tiling.lanes)


def packed_layer(node: Call, args: Sequence[Expr], tiling: CpuTiling) -> Expr | None:
    """Return a recurrent layer with its weight packed; ``None`` where that is not done.

    Args:
        node: ``nn.lstm`` or ``nn.gru``.
        args: Its operands as they are now.
        tiling: Register tile of the machine for float32.
    """
    if row_tile(tiling) is None:
        return None
    return byte_lstm(node, args, tiling) or _packed_float(node, args)


def _packed_float(node: Call, args: Sequence[Expr]) -> Expr | None:
    attrs, place = node.attrs, 3 if node.op is Lstm else 2
    weight = args[place]
    if not isinstance(weight, Constant) or weight.type.dtype is not DType.FLOAT32:
        return None
    hidden = weight.type.static_shape[0]
    if hidden < _COLUMNS or weight.type.bytes < _LEAST_BYTES:
        return None
    match attrs:
        case Lstm.Attrs(quantize_state=False) if attrs.has_plain_gates:
            own = PackedLayer.Attrs(kind="lstm", reverse=attrs.reverse)
        case Gru.Attrs(clip=0):
            own = PackedLayer.Attrs(
                kind="gru", reverse=attrs.reverse, linear_before_reset=attrs.linear_before_reset
            )
        case _:
            return None
    deferred = layer_deferred(weight.data, _GATES[own.kind], _COLUMNS)
    packed = constant(deferred, name=weight.name, span=weight.span)
    operands = (*args[:place], packed, *args[place + 1 :])
    return call(PackedLayer, *operands, attrs=own, span=node.span)


def layer_deferred(weight: Array, gates: int, width: int) -> DeferredArray:
    """Return what becomes ``weight[hidden, gates * hidden]`` as ``[blocks, gates, hidden, width]``,
    with zeros behind the last column.
    """
    hidden = len(weight)
    shape = (-(-hidden // width), gates, hidden, width)
    return DeferredArray(shape, weight.dtype, partial(_fill, weight), weight)


def _fill(weight: Array, packed: Array) -> None:
    _, gates, hidden, width = packed.shape
    columns = weight.reshape(hidden, gates, hidden).transpose(1, 0, 2)
    for number, block in enumerate(packed):
        part = columns[:, :, number * width : (number + 1) * width]
        block[:, :, : part.shape[2]] = part
        block[:, :, part.shape[2] :] = 0


def unpack_layer(packed: Array) -> Array:
    """Undo :func:`layer_deferred`."""
    blocks, gates, hidden, width = packed.shape
    columns = packed.transpose(2, 1, 0, 3).reshape(hidden, gates, blocks * width)
    return np.ascontiguousarray(columns[:, :, :hidden]).reshape(hidden, gates * hidden)


@operator("cpu.recurrent", OpKind.OPAQUE)
class PackedLayer(Op):
    """``nn.lstm`` or ``nn.gru`` with a packed weight.

    Operands and results are those of the layer, but for the weight ``[blocks, hidden, gates,
    width]``.
    """

    fixed_sizes = "the last of every operand: rows of the weight are read by vectors"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``kind``: ``lstm`` or ``gru``; the others as of the layer."""

        kind: str
        reverse: bool = False
        linear_before_reset: bool = False

    @staticmethod
    def type_rule(attrs: Attrs, x: TensorType, h: TensorType, *_rest: TensorType) -> TupleType:
        """States of all steps and the last state; the last cell of an LSTM."""
        states = x.with_shape((*x.shape[:2], h.shape[1]))
        return TupleType((states, h, h) if attrs.kind == "lstm" else (states, h))

    @staticmethod
    def reference(attrs: Attrs, *given: Array) -> tuple[Array, ...]:
        """The canonical layer with the weight as it was."""
        if attrs.kind == "lstm":
            x, h, c, packed = given
            return Lstm.reference(Lstm.Attrs(reverse=attrs.reverse), x, h, c, unpack_layer(packed))
        x, h, packed, bias = given
        return Gru.reference(_gru_attrs(attrs), x, h, unpack_layer(packed), bias)

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Loops for a machine without vectors."""
        return PackedLayer.tiled(RowTile(), attrs, *types)

    @staticmethod
    def tiled(
        tile: RowTile, attrs: Attrs, *types: TensorType, reverse: PrimExpr | None = None
    ) -> PrimFunc:
        """The loops for rows that go along together; ``reverse`` where the run says it."""
        if attrs.kind == "lstm":
            return Lstm.tiled(tile, Lstm.Attrs(reverse=attrs.reverse), *types, reverse=reverse)
        return Gru.tiled(tile, _gru_attrs(attrs), *types, reverse=reverse)


def _gru_attrs(attrs: PackedLayer.Attrs) -> Gru.Attrs:
    return Gru.Attrs(reverse=attrs.reverse, linear_before_reset=attrs.linear_before_reset)
