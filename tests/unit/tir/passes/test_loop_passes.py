# SPDX-License-Identifier: Apache-2.0
"""Passes over loops, read as text before and after, and run by the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    BinaryOp,
    Broadcast,
    FloatImm,
    IntImm,
    Load,
    Ramp,
    ReduceLanes,
    TirVar,
    cast,
    const,
    if_then_else,
    index,
    maximum,
    minimum,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.stmt import Allocate, For, ForKind, IfStmt, LetStmt, Seq, Store
from intarsia_ir.tir.tensor import placeholder
from intarsia_ir.tir.text.print import print_func
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError

F32 = DType.FLOAT32


def load(buffer, *indices):
    return Load(buffer, tuple(index(i) for i in indices), buffer.dtype, 1)


def loop(kind, extent, body, name="i"):
    var = TirVar(name)
    return For(var, index(extent), kind, body(var))


def kernel(body, *params):
    return PrimFunc("k", params, 1, body)


def lines(function):
    return [line.strip() for line in print_func(function).splitlines()]


def test_unroll_writes_out_nested_loops():
    x, y = Buffer("x", (2, 2), F32), Buffer("y", (2, 2), F32)
    body = loop(
        ForKind.UNROLLED,
        2,
        lambda i: loop(ForKind.UNROLLED, 2, lambda j: Store(y, (i, j), load(x, i, j)), "j"),
    )
    text = "\n".join(lines(unroll(kernel(body, x, y))))
    assert "unrolled" not in text
    for i in range(2):
        for j in range(2):
            assert f"y[{i}, {j}] = x[{i}, {j}]" in text


def test_unroll_keeps_other_loops_as_they_are():
    x, y = Buffer("x", (4,), F32), Buffer("y", (4,), F32)
    function = kernel(loop(ForKind.SERIAL, 4, lambda i: Store(y, (i,), load(x, i))), x, y)
    assert unroll(function) is function


def test_unroll_needs_a_constant_extent():
    y = Buffer("y", (4,), F32)
    body = loop(
        ForKind.SERIAL,
        4,
        lambda n: loop(ForKind.UNROLLED, n, lambda i: Store(y, (i,), FloatImm(1.0)), "j"),
    )
    with pytest.raises(VerifyError, match="'j' is not a constant"):
        unroll(kernel(body, y))


def test_vectorize_makes_a_vector_of_neighbours():
    x, y = Buffer("x", (8,), F32), Buffer("y", (8,), F32)
    body = loop(ForKind.VECTORIZED, 8, lambda i: Store(y, (i,), load(x, i) * 2.0))
    text = "\n".join(lines(vectorize(kernel(body, x, y))))
    assert "vectorized" not in text
    assert "for" not in text.replace("float", "")


@pytest.mark.parametrize(
    "element",
    [
        lambda x, i: load(x, i, 0),  # neighbours are not along the last dimension
        lambda x, i: if_then_else(i < 3, load(x, 0, i), 0.0),  # control flow differs between lanes
    ],
    ids=["column", "guard"],
)
def test_vectorize_falls_back_to_a_serial_loop(element):
    x, y = Buffer("x", (4, 4), F32), Buffer("y", (4,), F32)
    body = loop(ForKind.VECTORIZED, 4, lambda i: Store(y, (i,), element(x, i)))
    function = vectorize(kernel(body, x, y))
    assert isinstance(function.body, For)
    assert function.body.kind is ForKind.SERIAL


def _scratch(x, y, i):
    """Memory of its own for every iteration."""
    t = Buffer("t", (1,), F32, scope=MemoryScope.STACK)
    return Allocate(t, Seq((Store(t, (index(0),), load(x, 0, i)), Store(y, (i,), load(t, 0)))))


def _pair(x, at):
    """Elements ``at`` and ``at + 1`` of the first row."""
    return Load(x, (index(0), Ramp(at, 1, 2)), F32, 2)


@pytest.mark.parametrize(
    "body",
    [
        _scratch,
        lambda x, y, i: Store(y, (i,), load(x, 0, i * i)),
        lambda x, y, i: IfStmt(i < 2, Store(y, (i,), load(x, 0, i))),
        lambda x, y, i: Store(y, (i,), ReduceLanes(BinaryOp.ADD, _pair(x, index(0)) * 2.0, F32)),
        lambda x, y, i: Store(y, (i,), ReduceLanes(BinaryOp.ADD, _pair(x, minimum(i, 2)), F32)),
        lambda x, y, i: Store(
            y,
            (i,),
            ReduceLanes(BinaryOp.ADD, Broadcast(load(x, 0, i), 2, F32), F32),
        ),
    ],
    ids=["memory", "square", "branch", "same", "vector", "broadcast"],
)
def test_vectorize_keeps_what_a_loop_computes(body, request):
    x, y = Buffer("x", (4, 16), F32), Buffer("y", (4,), F32)
    before = kernel(loop(ForKind.VECTORIZED, 4, lambda i: body(x, y, i)), x, y)
    after = vectorize(before)
    serial = isinstance(after.body, For) and after.body.kind is ForKind.SERIAL
    assert serial == (request.node.callspec.id != "same")
    given = np.arange(64, dtype=np.float32).reshape(4, 16)
    results = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    for function, result in zip((before, after), results, strict=True):
        run(function, given, result)
    assert results[0].tolist() == results[1].tolist()


def test_vectorize_leaves_tensors_that_are_not_lowered():
    x, y = placeholder("x", (4,), F32), Buffer("y", (4,), F32)
    body = loop(ForKind.VECTORIZED, 4, lambda i: Store(y, (i,), x[i]))
    function = vectorize(kernel(body, y))
    assert isinstance(function.body, For)
    assert function.body.kind is ForKind.SERIAL


def test_vectorize_refuses_to_sum_into_one_element():
    x, y = Buffer("x", (4,), F32), Buffer("y", (), F32)
    body = loop(ForKind.VECTORIZED, 4, lambda i: Store(y, (), load(y) + load(x, i)))
    assert isinstance(vectorize(kernel(body, x, y)).body, For)


def everything(kind, extent):
    """A kernel with every kind of vector expression."""
    x, y = Buffer("x", (3, 16), F32), Buffer("y", (3, 16), F32)

    def body(row, i):
        taken = load(x, row, i)
        odd = load(x, row, index(15) - i)
        value = select(taken < odd, minimum(taken, 0.5), maximum(odd, -0.5))
        value = value + cast(i, F32) + if_then_else(row > 0, load(x, row - 1, i), 3.0)
        scale = TirVar("scale", F32)
        return LetStmt(scale, value * 2.0, Store(y, (row, i), scale + value))

    rows = loop(
        ForKind.SERIAL,
        3,
        lambda row: loop(
            ForKind.SERIAL,
            16 // extent,
            lambda o: loop(kind, extent, lambda i: body(row, o * extent + i), "v"),
            "o",
        ),
        "row",
    )
    return kernel(rows, x, y)


@pytest.mark.parametrize("extent", [1, 4, 16])
def test_passes_keep_what_a_kernel_computes(extent):
    x = np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)
    want = np.zeros_like(x)
    run(everything(ForKind.SERIAL, extent), x, want)
    for function in (
        vectorize(everything(ForKind.VECTORIZED, extent)),
        vectorize(simplify(everything(ForKind.VECTORIZED, extent))),
        unroll(everything(ForKind.UNROLLED, extent)),
    ):
        got = np.zeros_like(x)
        run(function, x, got)
        np.testing.assert_array_equal(got, want)


def simplified(element, extents, shape, size):
    """Text of the store of a loop nest after simplification."""
    x, y = Buffer("x", shape, F32), Buffer("y", (size,), F32)
    variables = [TirVar(name) for name, _ in zip("ijk", extents, strict=False)]
    flat, indices = element(*variables)
    body = Store(y, (flat,), load(x, *indices))
    for var, extent in zip(reversed(variables), reversed(extents), strict=True):
        body = For(var, IntImm(extent), ForKind.SERIAL, body)
    return lines(simplify(kernel(body, x, y)))


def test_simplify_undoes_a_reshape():
    text = simplified(
        lambda i, j: (i * 8 + j, ((i * 8 + j) // 8, (i * 8 + j) % 8)), (4, 8), (4, 8), 32
    )
    assert any("x[i, j]" in line for line in text), text


def test_simplify_joins_quotient_and_remainder():
    text = simplified(lambda i: (i // 5 * 5 + i % 5, (i // 5 * 5 + i % 5,)), (20,), (20,), 20)
    assert any("y[i] = x[i]" in line for line in text), text


def test_simplify_uses_the_range_of_loops():
    text = simplified(
        lambda i, j: (minimum(i * 4 + j, 100), (maximum(i * 4 + j, 0),)), (4, 4), (16,), 16
    )
    assert not any("min" in line or "max" in line for line in text), text


def test_simplify_drops_what_is_decided():
    x, y = Buffer("x", (4,), F32), Buffer("y", (4,), F32)
    body = Seq(
        (
            loop(
                ForKind.SERIAL,
                4,
                lambda i: IfStmt(i < 4, Store(y, (i,), load(x, i)), Store(y, (i,), FloatImm(9.0))),
            ),
            loop(ForKind.SERIAL, 1, lambda i: Store(y, (i,), load(x, i + 1))),
            loop(ForKind.SERIAL, 0, lambda i: Store(y, (i,), FloatImm(7.0))),
            loop(
                ForKind.SERIAL,
                3,
                lambda i: Store(y, (i,), if_then_else(i >= 5, load(x, i), load(x, i + 1))),
            ),
        )
    )
    text = "\n".join(lines(simplify(kernel(body, x, y))))
    assert "if" not in text
    assert "9" not in text
    assert "7" not in text
    assert "y[0] = x[1]" in text


def test_simplify_keeps_conditions_that_vary():
    x, y = Buffer("x", (4,), F32), Buffer("y", (4,), F32)
    body = loop(
        ForKind.SERIAL, 4, lambda i: Store(y, (i,), if_then_else(i > 1, load(x, i), const(0, F32)))
    )
    function = kernel(body, x, y)
    data, got = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    run(simplify(function), data, got)
    assert got.tolist() == [0, 0, 2, 3]
