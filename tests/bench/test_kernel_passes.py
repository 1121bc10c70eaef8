# SPDX-License-Identifier: Apache-2.0
"""Passes, verifier, printer and parser of the loop IR take time in proportion to the kernel."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import IntImm, Load, PrimExpr, TirVar, intrinsic
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.passes.merge_lanes import merge_lanes
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.split_registers import split_registers
from intarsia_ir.tir.passes.stack_to_scratch import stack_to_scratch
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.stmt import Allocate, For, ForKind, Seq, Stmt, Store
from intarsia_ir.tir.text import parse_func, print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_runtime.dtype import DType

pytestmark = pytest.mark.bench

F32 = DType.FLOAT32
SMALL, FACTOR = 250, 8
TOLERANCE = 2.5
"""How much longer than in proportion a larger kernel may take: caches are small."""

LANES, REPEATS = 8, 4


def many_loops(count: int) -> PrimFunc:
    """Many loops behind each other, with vectors, registers and short loops to write out."""
    x, y = Buffer("x", (count, REPEATS, LANES), F32), Buffer("y", (count, REPEATS, LANES), F32)
    nests: list[Stmt] = []
    for number in range(count):
        total = Buffer("total", (REPEATS,), F32, MemoryScope.REGISTER)
        kept = Buffer("kept", (64,), F32, MemoryScope.STACK)
        i, lane = TirVar("i"), TirVar("lane")
        at = (IntImm(number), i, lane)
        value = intrinsic(Intrinsic.ABS, Load(x, at, F32, 1)) * 2.0 + 1.0
        parts = Seq(
            (
                Store(total, (i,), Load(x, (IntImm(number), i, IntImm(0)), F32, 1)),
                Store(kept, (i * 2 + 1 - i * 2,), Load(total, (i,), F32, 1)),
                For(lane, IntImm(LANES), ForKind.VECTORIZED, Store(y, at, value)),
            )
        )
        loop = For(i, IntImm(REPEATS), ForKind.UNROLLED, parts)
        nests.append(Allocate(total, Allocate(kept, loop)))
    return PrimFunc("many_loops", (x, y), 1, Seq(tuple(nests)))


def one_expression(count: int) -> PrimFunc:
    """One statement whose expression is as long as it is deep, every part of it used twice."""
    x, y, i = Buffer("x", (64,), F32), Buffer("y", (64,), F32), TirVar("i")
    value: PrimExpr = Load(x, (i,), F32, 1)
    for _ in range(count * REPEATS):
        value = intrinsic(Intrinsic.ABS, value) * value + 1.0
    body = For(i, IntImm(64), ForKind.VECTORIZED, Store(y, (i,), value))
    return PrimFunc("one_expression", (x, y), 1, body)


def read_back(func: PrimFunc) -> PrimFunc:
    """Print and parse."""
    return parse_func(print_func(func))


def seconds(run: Callable[[PrimFunc], object], func: PrimFunc) -> float:
    """The quickest of three: other work of the machine only ever adds; garbage is not counted."""
    times: list[float] = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        start = time.process_time()
        run(func)
        times.append(time.process_time() - start)
        gc.enable()
    return min(times)


@pytest.mark.parametrize("make", [many_loops, one_expression])
@pytest.mark.parametrize(
    "run",
    [
        simplify,
        merge_lanes,
        unroll,
        vectorize,
        split_registers,
        stack_to_scratch,
        verify_func,
        print_func,
        read_back,
    ],
)
def test_time_is_in_proportion(
    run: Callable[[PrimFunc], object],
    make: Callable[[int], PrimFunc],
    capsys: pytest.CaptureFixture[str],
) -> None:
    small, large = make(SMALL), make(SMALL * FACTOR)
    run(small)
    before, after = seconds(run, small), seconds(run, large)
    with capsys.disabled():
        print(f"\n{run.__name__} of {make.__name__}: {1e3 * after:.0f} ms, {after / before:.1f}x")
    assert after < max(0.02, before * FACTOR * TOLERANCE), f"{FACTOR} times the kernel"
