# SPDX-License-Identifier: Apache-2.0
"""What NEON multiplies by: lanes of registers, and its instructions for signed bytes."""

from __future__ import annotations

from dataclasses import replace

from intarsia_ir.tir.expr import CallTarget, Load, PrimExpr, Ramp
from intarsia_runtime.dtype import DType

from ..functions import (
    SIGNED_DOT,
    SIGNED_DOT_BY_PAIRS,
    SIGNED_DOT_OF_NARROW,
    SIGNED_MATRIX,
    SPLATS,
)


def signed_dot(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add four products of signed bytes by the instruction of NEON."""
    return CallTarget("llvm", SIGNED_DOT, (total, left, right), DType.INT32, 1)


def signed_dot_by_pairs(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add four products of signed bytes by instructions of NEON for pairs."""
    return CallTarget("llvm", SIGNED_DOT_BY_PAIRS, (total, left, right), DType.INT32, 1)


def signed_dot_of_narrow(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add four products of signed bytes, of which two neighbours fit 16 bits together."""
    return CallTarget("llvm", SIGNED_DOT_OF_NARROW, (total, left, right), DType.INT32, 1)


def signed_matrix(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add products of 8 signed bytes of two rows and two columns by the instruction of NEON."""
    return CallTarget("llvm", SIGNED_MATRIX, (total, left, right), DType.INT32, total.lanes)


def left_lanes(element: PrimExpr, lane: int) -> PrimExpr | None:
    """Return a lane of the vector of four that begins at a load, or at a word of bytes."""
    vector = words_along(element)
    return vector and CallTarget("llvm", SPLATS[lane], (vector,), element.dtype, 4)


def words_along(element: PrimExpr) -> PrimExpr | None:
    """Return the vector of four that begins at a load, or at a word of bytes."""
    match element:
        case Load(dtype=DType.FLOAT32 | DType.INT32, lanes=1):
            return _from(element, 1)
        case CallTarget(function="llvm.quad", args=(Load() as byte,)):
            return replace(element, args=(_from(byte, 4),), lanes=4)
        case _:
            return None


def _from(first: Load, apart: int) -> Load:
    """Return four elements from one on, some elements apart."""
    *outer, last = first.indices
    return replace(first, indices=(*outer, Ramp(last, apart, 4)), lanes=4)
