# SPDX-License-Identifier: Apache-2.0
"""Rows whose best elements are wanted, and integers that order their elements."""

from __future__ import annotations

from msgspec import Struct

from intarsia_ir.ops.elements import wide
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import load, seq, store
from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    binary,
    cast,
    const,
    intrinsic,
    select,
)
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Stmt
from intarsia_runtime.dtype import DType


def order_dtype(dtype: DType) -> DType:
    """Return the shortest type that orders all elements of a type."""
    is_short = dtype.bytes < 4 or dtype in (DType.FLOAT32, DType.INT32)
    return DType.INT32 if is_short else DType.INT64


class OrderedRow(Struct, frozen=True):
    """A row of the operand and of the results.

    Attributes:
        data: ``[rows, size]``, or ``[rows, size, inner]``.
        values: The best elements, in order.
        places: Where they are.
        at: The indices of the row but that of the element.
        largest: Whether the largest elements are the best.
    """

    data: Buffer
    values: Buffer
    places: Buffer
    at: tuple[PrimExpr, ...]
    largest: bool

    @property
    def size(self) -> int:
        """How many elements there are."""
        return self.data.shape[1]

    @property
    def count(self) -> int:
        """How many are wanted."""
        return self.values.shape[1]

    def item(self, place: PrimExpr) -> Load:
        """Return the element at a place."""
        return load(self.data, self.at[0], place, *self.at[1:])

    def write(self, to: PrimExpr, place: PrimExpr) -> Stmt:
        """Write the element at a place as a result."""
        where = (self.at[0], to, *self.at[1:])
        return seq(store(self.values, where, self.item(place)), store(self.places, where, place))

    def order(self, item: PrimExpr) -> PrimExpr:
        """Return what elements are ordered by: equal ones alike, NaN behind every number."""
        value, dtype = wide(item), order_dtype(self.data.dtype)
        if not value.dtype.is_float:
            order = cast(value, dtype)
            if value.dtype is DType.UINT64:
                order = binary(BinaryOp.XOR, order, spread(~limit(dtype), order))
            return _complement(order) if self.largest else order
        bits = intrinsic(Intrinsic.BITS, value + spread(0, value))  # -0 becomes 0
        negative = binary(BinaryOp.XOR, bits, spread(limit(dtype), bits))
        order = select(bits < spread(0, bits), negative, bits)
        order = _complement(order) if self.largest else order
        is_nan = intrinsic(Intrinsic.ISNAN, value)
        return select(is_nan, spread(limit(dtype), order), order)


def limit(dtype: DType) -> int:
    """Return the greatest number of a signed type."""
    return (1 << (dtype.bits - 1)) - 1


def spread(number: int, like: PrimExpr) -> PrimExpr:
    """Return a constant as wide as another value."""
    value = const(number, like.dtype)
    return value if like.lanes == 1 else Broadcast(value, like.lanes, like.dtype)


def _complement(order: PrimExpr) -> PrimExpr:
    return binary(BinaryOp.XOR, order, spread(-1, order))
