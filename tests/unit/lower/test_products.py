# SPDX-License-Identifier: Apache-2.0
"""Products of two matrices of run time: panels turned round in registers, and single rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Function, Var, call, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Load, PrimExpr, Ramp, index
from intarsia_ir.tir.stmt import Allocate, Seq, Stmt, Store
from intarsia_ir.tir.text.print import print_func
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected

from .conftest import carry_out, lower, make_target


def transpose_registers(rows: Sequence[PrimExpr], write: Callable[[int, PrimExpr], Stmt]) -> Stmt:
    """Transpose a square through memory; loops of a backend do so in registers."""
    lanes, dtype = len(rows), rows[0].dtype
    square = Buffer("square", (lanes * lanes,), dtype, MemoryScope.STACK)
    down = [Store(square, (Ramp(index(i * lanes), 1, lanes),), row) for i, row in enumerate(rows)]
    across = [
        write(i, Load(square, (Ramp(index(i), lanes, lanes),), dtype, lanes)) for i in range(lanes)
    ]
    return Allocate(square, Seq((*down, *across)))


def tiling_of(_target: Target, _dtype: DType) -> CpuTiling:
    """The register tile of a small machine."""
    return CpuTiling(lanes=4, rows=4, transpose_registers=transpose_registers)


SCHEDULES = {"matmul": Schedules(tiling_of).matmul}


def _agree(a: tuple[int, ...], b: tuple[int, ...], *, transpose_b: bool) -> list[str]:
    """Compare with the reference; return the names of the operators."""
    function, changed = _product(a, b, transpose_b=transpose_b)
    drawn = np.random.default_rng(0)
    sizes = [tensor_type(param).static_shape for param in function.params]
    arrays = [drawn.integers(-9, 9, size).astype(np.float32) for size in sizes]
    lowered = lower(changed, (), target=make_target(**SCHEDULES))
    (got,) = carry_out(lowered, arrays, compiled=True)
    (want,) = expected(function, arrays)
    np.testing.assert_array_equal(got, want)
    return [node.name for node in calls(changed)]


def _product(
    a: tuple[int, ...], b: tuple[int, ...], *, transpose_b: bool
) -> tuple[Function, Function]:
    """Return a product as it is and as it is computed."""
    x, y = Var("a", TensorType(a, DType.FLOAT32)), Var("b", TensorType(b, DType.FLOAT32))
    attrs = Matmul.Attrs(transpose_b=transpose_b)
    function = Function((x, y), call(Matmul, x, y, attrs=attrs))
    return function, use_channels_last(function, tiling_of(make_target(), DType.FLOAT32))


@pytest.mark.parametrize("columns", [4, 8, 9, 11, 13, 18])
@pytest.mark.parametrize("depth", [4, 7, 12])
def test_panels_are_turned_where_they_are_used(columns: int, depth: int) -> None:
    assert _agree((5, depth), (columns, depth), transpose_b=True) == ["matmul"]


@pytest.mark.parametrize(("stack", "columns"), [(1, 256), (1, 784), (2, 387)])
def test_many_blocks_of_columns_are_written_side_by_side(stack: int, columns: int) -> None:
    assert _agree((stack, 9, 3), (stack, 3, columns), transpose_b=False) == ["matmul"]


def test_rows_of_a_wide_result_are_written_in_order() -> None:
    _, changed = _product((9, 3), (3, 784), transpose_b=False)
    (kernel,) = lower(changed, (), target=make_target(**SCHEDULES)).module.functions
    text = print_func(kernel)
    assert "for p in parallel(8):" in text  # 98 blocks of 8 columns, 13 an item, 7 the last
    assert text.index("for m in serial(2):") < text.index("for n in serial(min(13, 98 - ")


@pytest.mark.parametrize(
    ("a", "b", "is_copied"),
    [
        ((17, 40), (40, 1024), True),  # rows 4096 bytes apart share a set, five passes of four rows
        ((9, 40), (40, 1024), False),  # three passes
        ((70, 70), (70, 1027), True),  # more rows than pages that are translated without a miss
        ((17, 70), (70, 1027), False),  # five passes over rows of several sets
        ((70, 70), (70, 24), False),  # rows that the cache holds
    ],
)
def test_distant_rows_are_copied(a: tuple[int, int], b: tuple[int, int], is_copied: bool) -> None:
    _, changed = _product(a, b, transpose_b=False)
    (kernel,) = lower(changed, (), target=make_target(**SCHEDULES)).module.functions
    assert (f"[(n * {b[0]}) + k, " in print_func(kernel)) == is_copied


def test_stacks_of_panels() -> None:
    assert _agree((2, 3, 5, 6), (2, 3, 10, 6), transpose_b=True) == ["matmul"]


def test_what_several_products_share_is_turned_once() -> None:
    assert _agree((2, 3, 5, 6), (3, 10, 6), transpose_b=True) == ["transpose", "matmul"]


def test_what_is_too_deep_for_a_panel_is_turned_before() -> None:
    _, changed = _product((2, 20_000), (8, 20_000), transpose_b=True)
    assert [node.name for node in calls(changed)] == ["transpose", "matmul"]


@pytest.mark.parametrize("columns", [3, 9, 16, 33, 100])
def test_a_single_row_reads_many_columns_at_once(columns: int) -> None:
    _agree((3, 1, 12), (3, 12, columns), transpose_b=False)


@pytest.mark.parametrize("columns", [9, 32, 33])
def test_a_deep_single_row_has_fast_loops(columns: int) -> None:
    _, changed = _product((1, 9000), (9000, columns), transpose_b=False)
    (kernel,) = lower(changed, (), target=make_target(**SCHEDULES)).module.functions
    assert ("panel" in print_func(kernel)) == (columns % 32 > 0)


@pytest.mark.parametrize("columns", [1, 5, 8, 19])
@pytest.mark.parametrize("depth", [3, 4, 8, 11])
def test_a_row_meets_rows(columns: int, depth: int) -> None:
    assert _agree((1, depth), (columns, depth), transpose_b=True) == ["matmul"]
    assert _agree((2, 1, depth), (3, 1, columns, depth), transpose_b=True) == ["matmul"]


@pytest.mark.parametrize("depth", [4, 11])
def test_a_column_is_a_row(depth: int) -> None:
    assert _agree((9, depth), (depth, 1), transpose_b=False) == ["reshape", "matmul", "reshape"]
    names = _agree((2, 9, depth), (3, 1, 1, depth), transpose_b=True)
    assert names == ["reshape", "matmul", "reshape"]


def test_elements_taken_twice_may_be_infinite() -> None:
    a, b = np.ones((1, 6), np.float32), np.ones((3, 6), np.float32)
    b[0, 2], b[1, 3] = np.inf, np.nan
    _, changed = _product(a.shape, b.shape, transpose_b=True)
    (got,) = carry_out(lower(changed, (), target=make_target(**SCHEDULES)), [a, b], compiled=True)
    np.testing.assert_array_equal(got, [[np.inf, np.nan, 6]])
