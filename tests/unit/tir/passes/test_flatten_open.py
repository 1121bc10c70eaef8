# SPDX-License-Identifier: Apache-2.0
"""Kernels of open sizes after their strides became arithmetic."""

from __future__ import annotations

from typing import cast

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.flatten_open import flatten_open
from intarsia_ir.tir.stmt import LetStmt, Stmt
from intarsia_ir.tir.text.print import print_func
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.loops import load, seq, serial, store
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, floor_divide, maximum, variable

N, M = variable("N"), variable("M")
F32 = DType.FLOAT32


def matrix(name: str, *shape: Size) -> Buffer:
    """A parameter of open sizes."""
    return Buffer(name, cast("tuple[int, ...]", shape), F32)


def names(function: PrimFunc) -> list[str]:
    return [stmt.var.name for stmt in statements(function.body) if isinstance(stmt, LetStmt)]


def test_what_shapes_divide_is_computed_once() -> None:
    half = floor_divide(N + 1, 2)
    x, y = matrix("x", M, half), matrix("y", M, half)

    def row(i: PrimExpr) -> Stmt:
        return serial(index(half), lambda j: store(y, (i, j), load(x, i, j) + load(x, i, 0)))

    flat = flatten_open(PrimFunc("f", (x, y), 1, serial(index(M), row)))
    assert names(flat) == ["size0"]
    assert print_func(flat).count("// 2") == 3  # two shapes, and the one variable
    assert [size.name for size in flat.sizes] == ["M", "N"]


def test_equal_parts_of_sizes_are_one_variable_and_unused_ones_are_left_away() -> None:
    larger = maximum(floor_divide(N, 2), floor_divide(M, 3))
    x, y = matrix("x", larger, 2), matrix("y", larger, floor_divide(N, 2))
    body = seq(store(y, (0, 1), load(x, 0, 1)), store(y, (1, 1), load(x, 1, 1)))
    flat = flatten_open(PrimFunc("f", (x, y), 1, body))
    assert len(names(flat)) == 1  # a second dimension; nobody asks how many rows there are
    assert [size.name for size in flat.sizes] == ["N"]


def test_a_division_by_what_may_be_zero_stays_where_it_is() -> None:
    x, y = matrix("x", N), matrix("y", N)
    body = serial(index(floor_divide(N, M)), lambda i: store(y, (i,), load(x, i)))
    assert names(flatten_open(PrimFunc("f", (x, y), 1, body))) == []


def test_a_division_by_one_at_least_is_computed_once() -> None:
    parts = floor_divide(N, maximum(M, 1))
    x, y = matrix("x", 2, parts), matrix("y", 2, parts)
    body = seq(*(store(y, (n, 0), load(x, n, 0)) for n in range(2)))
    flat = flatten_open(PrimFunc("f", (x, y), 1, body))
    assert names(flat) == ["size0", "size1"]  # the divisor and the quotient


def test_parts_of_a_number_are_that_number_also_where_they_are_copies() -> None:
    x, y, at = matrix("x", N, M), matrix("y", N, M), Buffer("at", (2,), DType.INT64)

    def number() -> PrimExpr:
        return load(at, 1)

    body = store(y, (number() // index(M), number() % index(M)), load(x, 0, 0))
    flat = flatten_open(PrimFunc("f", (x, at, y), 1, body))
    assert "y[at[1]] = " in print_func(flat)


def test_parts_of_different_numbers_stay_apart() -> None:
    x, y, at = matrix("x", N, M), matrix("y", N, M), Buffer("at", (2,), DType.INT64)
    body = store(y, (load(at, 0) // index(M), load(at, 1) % index(M)), load(x, 0, 0))
    flat = flatten_open(PrimFunc("f", (x, at, y), 1, body))
    assert "y[((at[0] // M) * M) + (at[1] % M)]" in print_func(flat)


def test_a_quotient_by_a_product_and_its_parts_are_the_whole_number() -> None:
    """``x // M // N`` may be written as ``x // (M * N)``."""
    x, y, at = matrix("x", 8, N, M), matrix("y", 8, N, M), Buffer("at", (2,), DType.INT64)
    whole, n, m = load(at, 1), index(N), index(M)
    for product in (n * m, m * n):
        body = store(y, (whole // product, whole // m % n, whole % m), load(x, 0, 0, 0))
        flat = flatten_open(PrimFunc("f", (x, at, y), 1, body))
        assert "y[at[1]] = " in print_func(flat)
    for other in (n * m * 2, n * n, m, index(2)):
        body = store(y, (whole // other, whole // m % n, whole % m), load(x, 0, 0, 0))
        assert "y[at[1]] = " not in print_func(flatten_open(PrimFunc("f", (x, at, y), 1, body)))
