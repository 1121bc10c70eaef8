# SPDX-License-Identifier: Apache-2.0
"""Argmax and argmin of short rows: every lane of a vector scans a row of its own.

A scan that keeps value and index has a dependency from element to element. With a row in each lane,
8 or 16 rows share that latency. Registers: 2 accumulators (value and index), 1 element, 1 mask, 1
index = 5 of 16. Long rows are two reductions instead (``argmax_reductions.py``).
"""

from __future__ import annotations

from math import prod

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.ops.reduce import Argmax, ArgOp
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
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
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate, LetStmt, Stmt, Store
from intarsia_runtime.dtype import DType

from ..nests import better_extreme
from .loops import parallel, seq, serial


def argmax_kernel(group: FusedGroup, lanes: int) -> PrimFunc | None:
    """Return the kernel of ``argmax`` or ``argmin`` alone, along the last dimension that is not 1.

    Args:
        group: The fused group.
        lanes: Elements of 32 bits of a vector of the machine.
    """
    call = group.anchor
    if call is None or group.function.body is not call or not isinstance(call.attrs, ArgOp.Attrs):
        return None
    kind, attrs, params = tensor_type(call.args[0]), call.attrs, group.function.params
    shape = kind.static_shape
    size, rows = shape[attrs.axis], prod(shape[: attrs.axis])
    if call.args != params or prod(shape[attrs.axis + 1 :]) != 1 or kind.dtype.bits < 32:
        return None
    lanes = lanes * 4 // kind.dtype.bytes
    if lanes < 2 or rows < lanes:
        return None
    data = Buffer("x", (rows * size,), kind.dtype)
    result = Buffer("out", (rows,), DType.INT64)
    largest, last = call.op is Argmax, attrs.last
    best = Buffer("best", (lanes,), kind.dtype, MemoryScope.REGISTER)
    best_index = Buffer("found", (lanes,), DType.INT32, MemoryScope.REGISTER)
    all_lanes = (Ramp(index(0), 1, lanes),)

    def block(p: PrimExpr) -> Stmt:
        # The last rows overlap those before, if there is no whole number of them.
        first = minimum(p * lanes, rows - lanes)

        def column(k: PrimExpr) -> PrimExpr:
            return Load(data, (Ramp(first * size + k, size, lanes),), kind.dtype, lanes)

        def step(k: PrimExpr) -> Stmt:
            item = TirVar("item", kind.dtype, lanes)
            best_value = Load(best, all_lanes, kind.dtype, lanes)
            better = TirVar("better", DType.BOOL, lanes)
            position = Broadcast(cast(k + 1, DType.INT32), lanes, DType.INT32)
            stmts = seq(
                Store(best, all_lanes, select(better, item, best_value)),
                Store(
                    best_index,
                    all_lanes,
                    select(better, position, Load(best_index, all_lanes, DType.INT32, lanes)),
                ),
            )
            chosen = better_extreme(item, best_value, largest=largest, last=last)
            return LetStmt(item, column(k + 1), LetStmt(better, chosen, stmts))

        none = Broadcast(cast(index(0), DType.INT32), lanes, DType.INT32)
        positions = cast(Load(best_index, all_lanes, DType.INT32, lanes), DType.INT64)
        body = seq(
            Store(best, all_lanes, column(index(0))),
            Store(best_index, all_lanes, none),
            serial(size - 1, step, "k"),
            Store(result, (Ramp(first, 1, lanes),), positions),
        )
        return Allocate(best, Allocate(best_index, body))

    return PrimFunc(group.name, (data, result), 1, parallel(-(-rows // lanes), block))
