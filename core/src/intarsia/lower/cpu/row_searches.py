# SPDX-License-Identifier: Apache-2.0
"""Searches for the extreme element of short rows: every lane of a vector searches a row.

In a search each element waits for the one before it; sixteen rows wait together.
"""

from __future__ import annotations

from math import prod

from ...dtype import DType
from ...ir.expr import tensor_type
from ...ops.reduce import Argmax, ArgOp
from ...tir.buffer import Buffer, Scope
from ...tir.expr import (
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    TirVar,
    cast,
    index,
    minimum,
    select,
)
from ...tir.func import PrimFunc
from ...tir.stmt import Allocate, LetStmt, Stmt, Store
from ..kernels import FusedGroup
from ..nests import better_extreme
from .loops import parallel, seq, serial


def search_kernel(group: FusedGroup, lanes: int) -> PrimFunc | None:
    """Return the kernel of ``argmax`` or ``argmin`` alone, along the last dimension that is not 1.

    Args:
        group: The fused group.
        lanes: Elements of 32 bits of a vector of the machine.
    """
    call = group.anchor
    if call is None or group.function.body is not call or not isinstance(call.attrs, ArgOp.Attrs):
        return None
    if call.args != group.function.params:
        return None
    kind, attrs = tensor_type(call.args[0]), call.attrs
    shape = kind.static_shape
    size, rows = shape[attrs.axis], prod(shape[: attrs.axis])
    if prod(shape[attrs.axis + 1 :]) != 1 or kind.dtype.bits < 32:
        return None
    lanes = lanes * 4 // kind.dtype.bytes
    if lanes < 2 or rows < lanes:
        return None
    data = Buffer("x", (rows * size,), kind.dtype)
    result = Buffer("out", (rows,), DType.INT64)
    largest, last = call.op is Argmax, attrs.last
    best = Buffer("best", (lanes,), kind.dtype, Scope.REGISTER)
    found = Buffer("found", (lanes,), DType.INT32, Scope.REGISTER)
    whole = (Ramp(index(0), 1, lanes),)

    def block(p: PrimExpr) -> Stmt:
        # The last rows overlap those before, if there is no whole number of them.
        first = minimum(p * lanes, rows - lanes)

        def column(k: PrimExpr) -> PrimExpr:
            return Load(data, (Ramp(first * size + k, size, lanes),), kind.dtype, lanes)

        def step(k: PrimExpr) -> Stmt:
            item = TirVar("item", kind.dtype, lanes)
            known = Load(best, whole, kind.dtype, lanes)
            better = TirVar("better", DType.BOOL, lanes)
            place = Broadcast(cast(k + 1, DType.INT32), lanes, DType.INT32)
            stmts = seq(
                Store(best, whole, select(better, item, known)),
                Store(found, whole, select(better, place, Load(found, whole, DType.INT32, lanes))),
            )
            chosen = better_extreme(item, known, largest=largest, last=last)
            return LetStmt(item, column(k + 1), LetStmt(better, chosen, stmts))

        none = Broadcast(cast(index(0), DType.INT32), lanes, DType.INT32)
        places = cast(Load(found, whole, DType.INT32, lanes), DType.INT64)
        body = seq(
            Store(best, whole, column(index(0))),
            Store(found, whole, none),
            serial(size - 1, step, "k"),
            Store(result, (Ramp(first, 1, lanes),), places),
        )
        return Allocate(best, Allocate(found, body))

    return PrimFunc(group.name, (data, result), 1, parallel(-(-rows // lanes), block))
