# SPDX-License-Identifier: Apache-2.0
"""Transposes by squares in registers, of every width of element and any number of rows."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, function_of, var

SHAPES = ((16, 16), (17, 33), (64, 31), (3, 40, 18), (9, 12), (12, 9), (15, 16))


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize(
    "dtype", ["int8", "bool", "uint16", "float16", "float32", "int64", "float64"]
)
def test_matrices_of_any_type_change_rows_and_columns(runner, dtype, options):
    for shape in SHAPES:
        axes = (1, 0) if len(shape) == 2 else (0, 2, 1)
        function = function_of(apply("transpose", var("x", *shape, dtype=dtype), axes=axes))
        drawn = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, shape)
        x = drawn.astype(dtype)
        (got,), _, _ = runner(function, x, **options)
        np.testing.assert_array_equal(got, x.transpose(axes))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}, {"mcpu": "x86-64-v2"}])
def test_a_few_rows_are_interleaved(runner, dtype, options):
    for rows in (2, 3, 4, 7, 8, 9, 12, 15):
        shape = (2, rows, 7, 39)
        function = function_of(apply("transpose", var("x", *shape, dtype=dtype), axes=(0, 2, 3, 1)))
        x = np.random.default_rng(rows).integers(-99, 99, shape).astype(dtype)
        (got,), _, _ = runner(function, x, **options)
        np.testing.assert_array_equal(got, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("options", [{}, {"mcpu": "haswell"}], ids=["native", "AVX2"])
@pytest.mark.parametrize("shape", [(1, 1100, 70), (2, 4001, 17), (1, 33, 2100)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16"])
def test_matrices_that_leave_the_cache_are_cut_into_tiles(runner, dtype, shape, options):
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    function = function_of(apply("transpose", var("x", *shape, dtype=dtype), axes=(0, 2, 1)))
    (got,), _, _ = runner(function, x, **options)
    np.testing.assert_array_equal(got, x.transpose(0, 2, 1))


@pytest.mark.parametrize("mcpu", ["", "haswell"])
@pytest.mark.parametrize("shape", [(9, 12), (8, 8), (12, 9), (15, 15), (15, 16), (7, 9)], ids=str)
def test_few_rows_and_columns_of_an_open_batch(shape, mcpu, tmp_path):
    x = Var("x", TensorType((variable("N"), *shape), DType.FLOAT32))
    function = Function((x,), apply("transpose", x, axes=(0, 2, 1)))
    target = f"llvm -mcpu={mcpu}" if mcpu else "llvm"
    intarsia.build(IRModule.from_function(function), target).save(tmp_path / "m.intarsia")
    given = np.arange(3 * shape[0] * shape[1], dtype=np.float32).reshape(3, *shape)
    with intarsia.load(tmp_path / "m.intarsia", threads=1) as executable:
        (got,) = executable.run([given]).values()
    np.testing.assert_array_equal(got, given.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
@pytest.mark.parametrize("is_open", [(True, False), (False, True), (True, True)], ids=str)
def test_open_matrices_that_leave_the_cache_are_cut_into_tiles(is_open, dtype, tmp_path):
    """Up to 4001 rows or columns, also fewer than a square has, on one thread and on three."""
    for columns, batch in ((70, 1), (17, 2)):
        rows = 33 if not is_open[0] else 4001 if is_open[1] else 1100
        wide = 2100 if is_open == (False, True) else columns
        sizes = [
            variable(n) if o else e for n, o, e in zip("RC", is_open, (rows, wide), strict=True)
        ]
        x = Var("x", TensorType((variable("N"), *sizes), DType(dtype)))
        function = Function((x,), apply("transpose", x, axes=(0, 2, 1)))
        path = tmp_path / f"{columns}.intarsia"
        intarsia.build(IRModule.from_function(function), "llvm").save(path)
        for threads in (1, 3):
            with intarsia.load(path, threads=threads) as executable:
                for less in (0, 1, max(rows, wide) - 300, max(rows, wide) - 9):
                    shape = [
                        batch,
                        *(
                            max(2, e - less) if o else e
                            for o, e in zip(is_open, (rows, wide), strict=True)
                        ),
                    ]
                    given = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
                    (got,) = executable.run([given]).values()
                    np.testing.assert_array_equal(got, given.transpose(0, 2, 1))
