# SPDX-License-Identifier: Apache-2.0
"""What NEON multiplies by: a lane of a register, or the words along K of a row."""

from __future__ import annotations

from dataclasses import replace

from intarsia_ir.tir.expr import CallTarget, Load, PrimExpr, Ramp
from intarsia_runtime.dtype import DType

from ..functions import SPLATS


def left_lanes(element: PrimExpr, lane: int) -> PrimExpr | None:
    """Return a lane of the vector that begins at a load, or at a word of bytes."""
    vector = words_along(element)
    return vector and CallTarget("llvm", SPLATS[lane], (vector,), element.dtype, vector.lanes)


def words_along(element: PrimExpr) -> PrimExpr | None:
    """Return the vector that begins at a load, or at a word of narrower elements."""
    match element:
        case Load(dtype=DType.FLOAT16, lanes=1):
            return _from(element, 1, 8)
        case Load(dtype=DType.FLOAT32 | DType.INT32, lanes=1):
            return _from(element, 1)
        case CallTarget(function="llvm.quad", args=(Load() as first,)):
            apart = element.dtype.bytes // first.buffer.dtype.bytes
            return replace(element, args=(_from(first, apart),), lanes=4)
        case _:
            return None


def _from(first: Load, apart: int, lanes: int = 4) -> Load:
    """Return so many elements from one on, some elements apart."""
    *outer, last = first.indices
    return replace(first, indices=(*outer, Ramp(last, apart, lanes)), lanes=lanes)
