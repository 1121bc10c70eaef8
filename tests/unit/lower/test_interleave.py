# SPDX-License-Identifier: Apache-2.0
"""Transposes of a few rows: vectors overlap, and nothing behind the result is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Var, call
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.shape import Transpose
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Load, PrimExpr, Ramp, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate, Seq, Stmt, Store
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.transpose import transpose_kernel
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable
from intarsia_testkit.expressions import function_of

from .conftest import carry_out, lower, make_target


def _transpose_into_panel(rows: Sequence[PrimExpr], write: Callable[[int, PrimExpr], Stmt]) -> Stmt:
    """Through memory, as a machine that cannot trade blocks of vectors."""
    size = len(rows)
    tile = Buffer("tile", (size * size,), rows[0].dtype, MemoryScope.STACK)
    stmts: list[Stmt] = [
        Store(tile, (Ramp(index(i), size, size),), row) for i, row in enumerate(rows)
    ]
    for i in range(size):
        stmts.append(write(i, Load(tile, (Ramp(index(i * size), 1, size),), tile.dtype, size)))
    return Allocate(tile, Seq(tuple(stmts)))


def _no_square(
    _source: Buffer, _result: Buffer, _size: int, _place: tuple[PrimExpr, PrimExpr, PrimExpr]
) -> Stmt:
    raise AssertionError("matrices of a few rows have no whole square")


def _schedule(group: FusedGroup, _target: Target) -> PrimFunc | None:
    return transpose_kernel(group, 16, _no_square, transpose_registers=_transpose_into_panel)


def _transposed(batch: int, rows: int, columns: int, dtype: DType) -> PrimFunc:
    """Carry a transpose out, compare it with NumPy's, and return its kernel."""
    x = Var("x", TensorType((batch, rows, columns), dtype))
    function = function_of(call(Transpose, x, attrs=Transpose.Attrs(axes=(0, 2, 1))))
    lowered = lower(function, (), target=make_target(transpose=_schedule))
    values = np.arange(batch * rows * columns).reshape(batch, rows, columns).astype(dtype.value)
    (got,) = carry_out(lowered, [values], compiled=True)
    np.testing.assert_array_equal(got, values.transpose(0, 2, 1))
    (kernel,) = lowered.module.functions
    return kernel


@given(
    batch=st.integers(1, 2),
    rows=st.integers(2, 15),
    columns=st.integers(16, 300),
    dtype=st.sampled_from([DType.FLOAT32, DType.INT32]),
)
@settings(max_examples=25, deadline=None)
def test_a_few_rows(batch: int, rows: int, columns: int, dtype: DType) -> None:
    kernel = _transposed(batch, rows, columns, dtype)
    assert kernel.params[1].shape == (batch, columns * rows)


@given(
    batch=st.integers(1, 2),
    rows=st.integers(16, 300),
    columns=st.integers(3, 15),
    dtype=st.sampled_from([DType.FLOAT32, DType.INT32]),
)
@settings(max_examples=25, deadline=None)
def test_a_few_columns(batch: int, rows: int, columns: int, dtype: DType) -> None:
    kernel = _transposed(batch, rows, columns, dtype)
    assert kernel.params[0].shape == (batch, columns * rows)


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 63, 64, 65, 66, 200])
def test_photos_of_any_size(rows: int) -> None:
    x = Var("x", TensorType((variable("N"), variable("R"), 3), DType.FLOAT32))
    function = function_of(call(Transpose, x, attrs=Transpose.Attrs(axes=(0, 2, 1))))
    lowered = lower(function, (), target=make_target(transpose=_schedule))
    values = np.arange(2 * rows * 3).reshape(2, rows, 3).astype(np.float32)
    (got,) = carry_out(lowered, [values], compiled=True, sizes={"N": 2, "R": rows})
    np.testing.assert_array_equal(got, values.transpose(0, 2, 1))
    (kernel,) = lowered.module.functions
    assert any(isinstance(stmt, Allocate) for stmt in statements(kernel.body))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.FLOAT64])
def test_other_types_keep_their_loops(dtype: DType) -> None:
    x = Var("x", TensorType((1, 3, 64), dtype))
    function = function_of(call(Transpose, x, attrs=Transpose.Attrs(axes=(0, 2, 1))))
    lowered = lower(function, (), target=make_target(transpose=_schedule))
    values = np.arange(192).reshape(1, 3, 64).astype(dtype.value)
    (got,) = carry_out(lowered, [values], compiled=True)
    np.testing.assert_array_equal(got, values.transpose(0, 2, 1))
