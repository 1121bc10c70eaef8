# SPDX-License-Identifier: Apache-2.0
"""Vectors of registers become loops over lanes, and those of a step one loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, let
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    index,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.merge_lanes import merge_lanes
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.stmt import For, ForKind, Stmt, Store
from intarsia_ir.tir.walk import statements
from intarsia_loops.codegen.register_vectors import loop_over_lanes
from intarsia_loops.cpu.loops import seq, serial
from intarsia_runtime.dtype import DType

F32, LANES, STEPS = DType.FLOAT32, 8, 5

Rule = Callable[[PrimExpr, PrimExpr], PrimExpr]
"""What a sum becomes, of itself and a vector that has a name."""


def vector(buffer: Buffer, *first: PrimExpr | int) -> Load:
    *outer, last = [index(at) for at in first]
    return Load(buffer, (*outer, Ramp(last, 1, LANES)), F32, LANES)


def put(buffer: Buffer, value: PrimExpr, first: int = 0) -> Stmt:
    return Store(buffer, (Ramp(index(first), 1, LANES),), value)


def sums(rule: Rule, scope: MemoryScope = MemoryScope.REGISTER, wide: int = LANES) -> PrimFunc:
    """``for k: let column = w[k]: a = rule(a, column); b = b + column``; results are a and b."""
    w, out = Buffer("w", (STEPS, LANES), F32), Buffer("out", (2 * LANES,), F32)
    a, b = Buffer("a", (wide,), F32, scope), Buffer("b", (LANES,), F32, scope)

    def step(k: PrimExpr) -> Stmt:
        def added(column: PrimExpr) -> Stmt:
            return seq(put(a, rule(vector(a, 0), column)), put(b, vector(b, 0) + column))

        return let(vector(w, k, 0), added, "column")

    zero = Broadcast(Load(w, (index(0), index(0)), F32, 1), LANES, F32)
    begin = seq(put(a, zero), put(b, zero))
    end = seq(put(out, vector(a, 0)), put(out, vector(b, 0), LANES))
    body = allocate((a, b), seq(begin, serial(STEPS, step, "k"), end))
    return PrimFunc("f", (w, out), 1, body)


def rows() -> PrimFunc:
    """``a[1] = w[0]; for k: (a[0] = a[1] + w[k]; a[1] = w[k])``; results are the rows of a."""
    w, out = Buffer("w", (STEPS, LANES), F32), Buffer("out", (2 * LANES,), F32)
    a = Buffer("a", (2, LANES), F32, MemoryScope.REGISTER)

    def row(buffer: Buffer, number: int, value: PrimExpr) -> Stmt:
        return Store(buffer, (index(number), Ramp(index(0), 1, LANES)), value)

    def step(k: PrimExpr) -> Stmt:
        total = row(a, 0, vector(a, 1, 0) + vector(w, k, 0))
        return seq(total, row(a, 1, vector(w, k, 0)))

    end = seq(*(put(out, vector(a, number, 0), number * LANES) for number in range(2)))
    steps = serial(STEPS, step, "k")
    return PrimFunc("f", (w, out), 1, allocate((a,), seq(row(a, 1, vector(w, 0, 0)), steps, end)))


def loops(func: PrimFunc) -> list[int]:
    """Return of each loop over lanes how many vectors it writes."""
    lanes = [s for s in statements(func.body) if isinstance(s, For)]
    lanes = [loop for loop in lanes if loop.kind is ForKind.VECTORIZED]
    return [sum(isinstance(s, Store) for s in statements(loop.body)) for loop in lanes]


def plus(total: PrimExpr, column: PrimExpr) -> PrimExpr:
    return total + column * 2.0


def reduced(total: PrimExpr, column: PrimExpr) -> PrimExpr:
    return total + Broadcast(ReduceLanes(BinaryOp.ADD, column, F32), LANES, F32)


def turned(total: PrimExpr, column: PrimExpr) -> PrimExpr:
    """Each lane reads what another wrote."""
    assert isinstance(total, Load)
    back = Load(total.buffer, (Ramp(index(LANES - 1), -1, LANES),), F32, LANES)
    return Binary(BinaryOp.ADD, back, column, F32, LANES)


@pytest.mark.parametrize(
    ("func", "wanted"),
    [
        (sums(plus), [2, 3, 2]),  # both beginnings; the column and both sums; both copies
        (sums(reduced), [2, 1, 1, 2]),  # the column is whole before a sum reads all of it
        (sums(turned), [2, 1, 1, 2]),  # a vector that reads its own other lanes stays as it is
        (sums(plus, wide=2 * LANES), [2, 3, 2]),  # half of an array is a register
        (sums(plus, wide=LANES + 4), [1, 1, 1, 1]),  # what does not divide an array is none
        (sums(plus, MemoryScope.STACK), [1]),  # memory: only the column, which has a name
        (rows(), [1, 1, 1, 2]),  # rows of an array, of which one reads the other, and their copies
    ],
)
def test_vectors_of_registers_share_a_loop(func: PrimFunc, wanted: list[int]) -> None:
    made = merge_lanes(simplify(loop_over_lanes(func)))
    assert loops(made) == wanted
    w = np.random.default_rng(1).standard_normal((STEPS, LANES), np.float32)
    before, after = (np.zeros(2 * LANES, np.float32) for _ in range(2))
    run(func, w, before)
    run(made, w, after)
    np.testing.assert_array_equal(after, before)
    assert np.abs(after).max() > 1


def test_a_function_without_vectors_is_left() -> None:
    out = Buffer("out", (4,), F32)
    func = PrimFunc("f", (out,), 1, serial(4, lambda i: Store(out, (i,), index(1))))
    assert loop_over_lanes(func) is func
