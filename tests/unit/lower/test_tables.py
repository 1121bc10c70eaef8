# SPDX-License-Identifier: Apache-2.0
"""Tables of places that a kernel reads: computed once, and read in front of a loop where they can.

Kernels are compared as text, and carried out.
"""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Var
from intarsia_ir.graph.types import TensorType
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import load
from intarsia_ir.tir.expr import INDEX, IfThenElse, TirVar, if_then_else
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.text.print import print_func
from intarsia_loops.invariants import hoisted_places
from intarsia_loops.loops import default_loops
from intarsia_loops.tensors import stages_of
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, function_of, var


def carried_out(kernel: PrimFunc, given: list[np.ndarray]) -> np.ndarray:
    """What a kernel of one result computes."""
    made = [np.zeros(buffer.shape, buffer.dtype.value) for buffer in kernel.params[len(given) :]]
    run(kernel, *given, *made)
    return made[0]


def taken(rows: int, columns: int) -> Call:
    x = Var("x", TensorType((4, rows, columns), DType.FLOAT32))
    picks = [Var(name, TensorType((size,), DType.INT64)) for name, size in (("r", 5), ("c", 7))]
    return apply("take", apply("take", x, picks[0], axis=1), picks[1], axis=2)


def test_places_along_rows_are_clamped_once_and_those_of_rows_in_front_of_the_loop() -> None:
    function = function_of(taken(6, 9))
    kernel = default_loops("kernel", stages_of(function))
    rows = "select(p1[i1] < 0, p1[i1] + 6, p1[i1])"
    text = print_func(kernel)
    assert f"let place = min(max({rows}, 0), 5)" in text
    assert text.endswith("out0[i0_1, i1, i2] = p0[i0_1, place, row0[i2]]\n"), text
    x = np.random.default_rng(0).standard_normal((4, 6, 9)).astype(np.float32)
    given = [x, np.array([0, -1, 5, 2, -6]), np.array([8, -9, 0, 3, -1, 4, 4])]
    (want,) = expected(function, given)
    np.testing.assert_array_equal(carried_out(kernel, given), want)


def test_a_table_of_a_kernel_of_several_threads_is_no_stack_of_one() -> None:
    x = var("x", 64, 40, 40)
    body = apply(
        "nn.resize", x, sizes=(64, 68, 68), scales=(1.0, 1.7, 1.7), coordinate_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip
    kernel = default_loops("kernel", stages_of(function_of(body)))
    assert kernel.scratch == 2
    text = print_func(kernel)
    assert "in parallel(64)" in text
    assert "let place = scratch0[i1]" in text
    assert "/" not in text.split("parallel")[1]
    data = np.random.default_rng(1).standard_normal((64, 40, 40)).astype(np.float32)
    (want,) = expected(function_of(body), [data])
    np.testing.assert_array_equal(carried_out(kernel, [data]), want)


@pytest.mark.parametrize("size", [20, 5])
def test_places_that_follow_from_numbers_need_no_table(size: int) -> None:
    x = var("x", 30, 10)
    body = apply(
        "nn.resize", x, sizes=(30, size), coordinate_mode="asymmetric", nearest_mode="floor"
    )
    kernel = default_loops("kernel", stages_of(function_of(body)))
    assert "row0" not in print_func(kernel)
    data = np.random.default_rng(2).standard_normal((30, 10)).astype(np.float32)
    (want,) = expected(function_of(body), [data])
    np.testing.assert_array_equal(carried_out(kernel, [data]), want)


@pytest.mark.parametrize("guarded", [False, True])
def test_what_a_condition_guards_is_not_read_in_front(guarded: bool) -> None:
    table, x = (Buffer(name, (8,), dtype) for name, dtype in (("t", INDEX), ("x", DType.FLOAT32)))
    row, column = TirVar("i"), TirVar("j")
    value = load(x, load(table, row) + column)
    if guarded:
        value = if_then_else(row < 8, value, 0.0)
    found, bound = hoisted_places(value, column)
    assert (found is value, len(bound)) == (guarded, 0 if guarded else 1)
    assert guarded is isinstance(found, IfThenElse)


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8])
def test_loops_over_a_table_of_bytes_have_vectors_where_the_backend_looks_them_up(dtype) -> None:
    kinds = (TensorType((3, 64), dtype), TensorType((256,), DType.UINT8))
    x, table = (Var(name, kind) for name, kind in zip("xt", kinds, strict=True))
    stages = stages_of(function_of(apply("qnn.lookup", x, table)))
    for byte_tables in (False, True):
        text = print_func(default_loops("kernel", stages, byte_tables=byte_tables))
        assert ("vectorized" in text) is byte_tables, text
