# SPDX-License-Identifier: Apache-2.0
"""Sums in registers as C compilers like them, and temporaries that the caller provides."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, Load, PrimExpr, Ramp, ReduceLanes, TirVar, const, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.merge_lanes import merge_lanes
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.split_registers import split_registers
from intarsia_ir.tir.passes.stack_to_scratch import stack_to_scratch
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_ir.tir.stmt import Allocate, For, ForKind, Stmt, Store
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.dense import dense_loops
from intarsia_loops.cpu.loops import load, seq, serial, store, unrolled, vectorized
from intarsia_loops.cpu.packing import pack_dense
from intarsia_loops.cpu.panel import flat_rows
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType

F32 = DType.FLOAT32


def product(rows: int, depth: int, outputs: int, shape: CpuTiling) -> tuple[PrimFunc, int]:
    width = 2 * shape.lanes if outputs > shape.lanes else shape.lanes
    blocks = -(-outputs // width)
    a, w = Buffer("a", (rows, depth), F32), Buffer("w", (blocks, depth, width), F32)
    out = Buffer("out", (rows, outputs), F32)

    def finish(value: object, indices: object) -> Stmt:
        return store(out, indices, value)  # type: ignore[arg-type]

    body = dense_loops(shape, flat_rows(a), w, outputs, finish, [rows])
    return PrimFunc("product", (a, w, out), 1, body), width


def flat(function: PrimFunc) -> PrimFunc:
    return merge_lanes(simplify(split_registers(unroll(simplify(function)))))


@pytest.mark.parametrize(("rows", "outputs"), [(6, 16), (7, 19), (1, 3), (13, 40)])
def test_a_product_stays_the_same(rows: int, outputs: int) -> None:
    function, width = product(rows, 10, outputs, CpuTiling(8, 6))
    rng = np.random.default_rng(rows)
    a, w = (rng.normal(size=s).astype(np.float32) for s in ((rows, 10), (10, outputs)))
    out = np.zeros((rows, outputs), np.float32)
    run(flat(function), a, pack_dense(w, width), out)
    np.testing.assert_allclose(out, a @ w, rtol=1e-5, atol=1e-6)


def test_one_loop_over_lanes_adds_to_all_vectors() -> None:
    function, _ = product(6, 10, 16, CpuTiling(8, 6))
    stmts = list(statements(flat(function).body))
    buffers = [s.buffer for s in stmts if isinstance(s, Allocate)]
    assert [b.shape for b in buffers] == [(8,)] * 12
    assert len({b.name for b in buffers}) == 12
    (depth,) = [s for s in stmts if isinstance(s, For) and s.kind is ForKind.SERIAL]
    assert isinstance(depth.body, For)
    assert depth.body.kind is ForKind.VECTORIZED
    assert sum(isinstance(s, Store) for s in statements(depth.body)) == 12


def test_what_is_at_no_constant_place_stays() -> None:
    acc, x = Buffer("acc", (4, 8), F32, MemoryScope.REGISTER), Buffer("x", (4, 8), F32)
    out = Buffer("out", (4, 8), F32)

    def copied(target: Buffer, source: Buffer) -> Stmt:
        return serial(
            4, lambda r: vectorized(8, lambda i: store(target, (r, i), load(source, r, i)))
        )

    function = PrimFunc("f", (x, out), 1, Allocate(acc, seq(copied(acc, x), copied(out, acc))))
    assert split_registers(function) is function


def test_a_vector_that_is_reduced_is_split_too() -> None:
    """As the maxima of a row, which one loop over lanes finds and one expression combines."""
    most, x = Buffer("most", (2, 4), F32, MemoryScope.REGISTER), Buffer("x", (3, 8), F32)
    out = Buffer("out", (1,), F32)

    def add(row: PrimExpr, r: int) -> Stmt:
        return vectorized(4, lambda i: store(most, (r, i), load(most, r, i) + load(x, row, i)))

    def clear(r: int) -> Stmt:
        return vectorized(4, lambda i: store(most, (r, i), const(0.0, F32)))

    first, second = (Load(most, (index(r), Ramp(index(0), 1, 4)), F32, 4) for r in range(2))
    body = seq(
        clear(0),
        clear(1),
        serial(3, lambda row: seq(add(row, 0), add(row, 1))),
        store(out, (0,), ReduceLanes(BinaryOp.ADD, first + second * 2.0, F32)),
    )
    function = flat(PrimFunc("f", (x, out), 1, Allocate(most, body)))
    stmts = list(statements(function.body))
    assert [s.buffer.name for s in stmts if isinstance(s, Allocate)] == ["most_0", "most_1"]
    loops = [s for s in stmts if isinstance(s, For) and s.kind is ForKind.VECTORIZED]
    assert len(loops) == 2
    result = np.zeros(1, np.float32)
    run(function, np.arange(24, dtype=np.float32).reshape(3, 8), result)
    assert result == 3 * np.arange(24).reshape(3, 8)[:, :4].sum()


def test_lanes_that_cross_are_not_joined() -> None:
    """Reversing through registers: the second loop reads lanes that the first wrote elsewhere."""
    a, b = (Buffer(n, (1, 4), F32, MemoryScope.REGISTER) for n in "ab")
    x, out = Buffer("x", (4,), F32), Buffer("out", (4,), F32)
    body = seq(
        vectorized(4, lambda i: store(a, (0, i), load(x, i))),
        vectorized(4, lambda i: store(b, (0, i), load(a, 0, index(3) - i))),
        vectorized(4, lambda i: store(out, (i,), load(b, 0, i))),
    )
    function = PrimFunc("f", (x, out), 1, Allocate(a, Allocate(b, body)))
    result = np.zeros(4, np.float32)
    run(flat(function), np.arange(4, dtype=np.float32), result)
    np.testing.assert_array_equal(result, [3, 2, 1, 0])


def test_copies_of_a_loop_count_with_variables_of_their_own() -> None:
    out = Buffer("out", (3, 2), F32)
    body = unrolled(3, lambda r: serial(2, lambda c: store(out, (r, c), load(out, r, c) + 1.0)))
    loops = [
        s for s in statements(unroll(PrimFunc("f", (out,), 1, body)).body) if isinstance(s, For)
    ]
    assert len({s.var for s in loops}) == 3


def test_a_stack_becomes_scratch() -> None:
    x, out = Buffer("x", (5,), F32), Buffer("out", (5,), F32)
    strip = Buffer("strip", (7,), F32, MemoryScope.STACK)
    i = TirVar("i")
    body = Allocate(
        strip,
        seq(
            serial(5, lambda n: store(strip, (n,), load(x, n))),
            For(i, index(5), ForKind.SERIAL, store(out, (i,), load(strip, i) + load(strip, 0))),
        ),
    )
    function = PrimFunc("f", (x, out), 1, body)
    moved = stack_to_scratch(function)
    assert [b.shape for b in moved.scratch_params] == [(7,)]
    assert moved.output_params == (out,)
    result = np.zeros(5, np.float32)
    run(moved, np.arange(2, 7, dtype=np.float32), result, np.zeros(7, np.float32))
    np.testing.assert_array_equal(result, np.arange(2, 7) + 2)
    assert stack_to_scratch(moved) is moved
