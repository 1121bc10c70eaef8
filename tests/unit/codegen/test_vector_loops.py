# SPDX-License-Identifier: Apache-2.0
"""Loops over lanes that are written with vector types, and the text of a kernel that has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from intarsia_c.spelling import C99
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, let, load, seq, serial, store
from intarsia_ir.tir.expr import FloatImm, PrimExpr, cast, maximum
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Stmt
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_source import print_kernel
from intarsia_loops.codegen.vector_loops import find_vectors
from intarsia_loops.cpu.loops import vectorized
from intarsia_runtime.dtype import DType

F32, LANES = DType.FLOAT32, 8
X, W, OUT = (Buffer(n, s, F32) for n, s in (("x", (5,)), ("w", (5, 16)), ("out", (3, 8))))

Value = Callable[[Buffer, PrimExpr, PrimExpr], PrimExpr]
"""``value(sum, k, lane)``: what an element of the sum becomes in a step."""


def tile(
    value: Value, end: Callable[[PrimExpr], PrimExpr] = lambda total: total, lanes: int = LANES
) -> PrimFunc:
    """``sum = 0; for k: sum = value(sum, k); out[2] = end(sum)``, each for all lanes."""
    total = Buffer("sum", (LANES,), F32, MemoryScope.REGISTER)

    def each(body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return vectorized(lanes, body)

    begin = each(lambda v: store(total, (v,), FloatImm(0.0)))
    step = serial(5, lambda k: each(lambda v: store(total, (v,), value(total, k, v))), "k")
    last = each(lambda v: store(OUT, (2, v), end(load(total, v))))
    return PrimFunc("f", (X, W, OUT), 1, allocate((total,), seq(begin, step, last)))


def product(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, v) + load(X, k) * load(W, k, v + 8)


def text_of(func: PrimFunc, size: int = 32) -> str:
    return print_kernel(func, Functions(replace(C99, vector_bytes=size)))


def test_a_tile_of_sums() -> None:
    functions = Functions(replace(C99, vector_bytes=32))
    text = print_kernel(tile(product, lambda total: total + load(X, 1)), functions)
    assert text.splitlines()[3:] == [
        "{",
        "    ix_f32x8 sum;",
        "    sum = 0.0f - (ix_f32x8){0};",
        "    for (intptr_t k = 0; k < 5; ++k) {",
        "        sum = sum + (x[k] * *(const ix_f32x8u *)&w[k * 16 + 8]);",
        "    }",
        "    *(ix_f32x8u *)&out[2 * 8] = sum + x[1];",
        "}",
    ]
    assert functions.texts["ix_f32x8"].splitlines() == [
        "typedef float ix_f32x8 __attribute__((vector_size(32)));",
        "typedef float ix_f32x8u __attribute__((vector_size(32), aligned(4), may_alias));",
    ]


def test_functions_of_sums_stay_loops_over_a_copy() -> None:
    text = text_of(tile(product, lambda total: maximum(total, 0.0)))
    assert text.splitlines()[-6:] == [
        "    float sum_lanes[8];",
        "    *(ix_f32x8u *)sum_lanes = sum;",
        "    for (intptr_t v = 0; v < 8; ++v) {",
        "        out[2 * 8 + v] = ix_max_f32(0.0f, sum_lanes[v]);",
        "    }",
        "}",
    ]


def strided(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, v) + load(W, k, v * 2)


def from_rows(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, v) + load(W, v, k)


def from_the_end(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, v) + load(W, k, 7 - v)


def other_lanes(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, 7 - v) + load(W, k, v)


def numbered(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, v) + cast(v, F32)


def divided(total: Buffer, k: PrimExpr, v: PrimExpr) -> PrimExpr:
    return load(total, v) / load(W, k, v)


@pytest.mark.parametrize("rule", [strided, from_rows, from_the_end, other_lanes, numbered, divided])
def test_sums_that_are_no_vectors(rule: Value) -> None:
    found = find_vectors(tile(rule).body, 32)
    assert not found.buffers
    assert not found.loops
    assert "ix_f32x8" not in text_of(tile(rule))


@pytest.mark.parametrize(("lanes", "size"), [(4, 32), (8, 64), (8, 0)])
def test_loops_over_a_part_and_other_registers(lanes: int, size: int) -> None:
    assert "ix_" not in text_of(tile(product, lanes=lanes), size)


def test_a_sum_that_is_read_outside_of_loops_over_lanes() -> None:
    func = tile(product)
    (total,) = find_vectors(func.body, 32).buffers
    named = let(load(total, 3), lambda lane: store(OUT, (0, 0), lane))
    body = allocate((total,), seq(func.body.body, named))
    assert not find_vectors(body, 32).buffers


def test_other_statements_in_a_loop_over_lanes() -> None:
    """No loop of stores alone: it stays, and so do the registers it writes."""
    total = Buffer("sum", (LANES,), F32, MemoryScope.REGISTER)
    inner = vectorized(8, lambda v: serial(5, lambda k: store(total, (v,), product(total, k, v))))
    assert not find_vectors(allocate((total,), inner), 32).buffers


def test_loops_of_memory_alone_are_left_to_the_compiler() -> None:
    copy = vectorized(8, lambda v: store(OUT, (0, v), load(W, 0, v)))
    assert not find_vectors(copy, 32).loops
