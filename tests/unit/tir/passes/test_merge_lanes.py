# SPDX-License-Identifier: Apache-2.0
"""Neighbouring loops over lanes become one where no lane touches what is another's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.merge_lanes import merge_lanes
from intarsia_ir.tir.stmt import For, ForKind, Stmt
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.loops import load, seq, serial, store, vectorized
from intarsia_runtime.dtype import DType

F32 = DType.FLOAT32
Place = Callable[[PrimExpr, PrimExpr], PrimExpr]


def function(first: Place, second: Place, *, source: bool = True) -> PrimFunc:
    """``out[first] = x; out[second] = y + 1`` in vectors of four, for two values of ``p``."""
    x, out = Buffer("x", (32,), F32), Buffer("out", (32,), F32)
    read = x if source else out

    def body(p: PrimExpr) -> Stmt:
        return seq(
            vectorized(4, lambda v: store(out, (first(p, v),), load(x, p * 16 + v))),
            vectorized(4, lambda v: store(out, (second(p, v),), load(read, p * 16 + v) + 1.0)),
        )

    return PrimFunc("f", (x, out), 1, serial(2, body, "p"))


def vectors(func: PrimFunc) -> int:
    return sum(
        isinstance(part, For) and part.kind is ForKind.VECTORIZED for part in statements(func.body)
    )


def at(offset: int, factor: int = 1) -> Place:
    def place(p: PrimExpr, v: PrimExpr) -> PrimExpr:
        return p * 16 + v * factor + offset

    return place


def back(p: PrimExpr, v: PrimExpr) -> PrimExpr:
    """From the last lane to the first."""
    return p * 16 + 3 - v


def block(offset: int) -> Place:
    """A place in a block of a row, both counted by one loop."""

    def place(p: PrimExpr, v: PrimExpr) -> PrimExpr:
        return (p // 2) * 32 + (p % 2) * 16 + v + offset

    return place


def crossed(p: PrimExpr, v: PrimExpr) -> PrimExpr:
    """A place that is no linear function of the lane."""
    return p * 16 + v // 2 + (v % 2) * 2


def crossed_behind(p: PrimExpr, v: PrimExpr) -> PrimExpr:
    return crossed(p, v) + 1


def unlike(p: PrimExpr, v: PrimExpr) -> PrimExpr:
    """A place whose distance from others is no constant."""
    return p * 8 + v


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (at(0), at(4), 1),
        (at(4), at(0), 1),
        (at(0), at(3), 2),
        (at(0, 2), at(7, 2), 1),
        (at(0, 2), at(1, 2), 2),
        (at(0), back, 2),
        (at(0), unlike, 2),
        (block(0), block(4), 1),
        (block(0), block(2), 2),
        (crossed, crossed_behind, 2),
    ],
)
def test_loops_join_where_their_stores_are_apart(first: Place, second: Place, left: int) -> None:
    func = function(first, second)
    merged = merge_lanes(func)
    assert vectors(merged) == left
    x = np.arange(32, dtype=np.float32)
    want, got = np.zeros(32, np.float32), np.zeros(32, np.float32)
    run(func, x, want)
    run(merged, x, got)
    np.testing.assert_array_equal(got, want)


def test_a_loop_that_reads_what_the_other_stored_stays_behind_it() -> None:
    func = function(at(0), at(4), source=False)
    assert merge_lanes(func) is func


def test_loops_of_other_lengths_stay_apart() -> None:
    out = Buffer("out", (32,), F32)
    x = Buffer("x", (32,), F32)
    parts = [vectorized(n, lambda v, n=n: store(out, (v + 8 * n,), load(x, v))) for n in (2, 3)]
    func = PrimFunc("f", (x, out), 1, seq(*parts))
    assert merge_lanes(func) is func
    plain = PrimFunc("f", (x, out), 1, For(TirVar("i"), parts[0].extent, ForKind.SERIAL, seq()))  # type: ignore[union-attr]
    assert merge_lanes(plain) is plain
