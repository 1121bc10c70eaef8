# SPDX-License-Identifier: Apache-2.0
"""Products whose rows lie 4096 bytes apart: a tile copies them, or not, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply


@pytest.mark.parametrize("cpu", ["native", "haswell", "x86-64"])
@pytest.mark.parametrize("columns", [16, 31, 64, 1200])
@pytest.mark.parametrize(("rows", "depth"), [(31, 1024), (5, 1024), (29, 1023), (28, 16384)])
def test_products_of_rows_in_one_set_of_a_cache(rows, depth, columns, cpu) -> None:
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, depth)).astype(np.float32)
    b = rng.standard_normal((depth, columns)).astype(np.float32)
    operands = [
        Var(name, TensorType(array.shape, DType.FLOAT32)) for name, array in (("a", a), ("b", b))
    ]
    model = IRModule.from_function(Function(tuple(operands), apply("matmul", *operands)))
    with intarsia.build(model, f"llvm -mcpu={cpu}").load() as executor:
        (found,) = executor.run({"a": a, "b": b}).values()
    wanted = a.astype(np.float64) @ b
    np.testing.assert_allclose(np.asarray(found), wanted, atol=3e-6 * depth)


@pytest.mark.parametrize("cpu", ["native", "haswell"])
@pytest.mark.parametrize("depth", [1024, 1023])
def test_an_open_number_of_such_rows(depth: int, cpu: str) -> None:
    """Large tiles read a copy, small ones the rows themselves; the last ones overlap."""
    rng = np.random.default_rng(depth)
    weight = rng.standard_normal((depth, 40)).astype(np.float32)
    data = Var("a", TensorType((variable("M"), depth), DType.FLOAT32))
    product = apply("matmul", data, constant(weight))
    model = IRModule.from_function(Function((data,), product))
    with intarsia.build(model, f"llvm -mcpu={cpu}").load() as executor:
        for rows in (0, 1, 5, 13, 14, 15, 27, 28, 43, 99, 250):
            a = rng.standard_normal((rows, depth)).astype(np.float32)
            (found,) = executor.run({"a": a}).values()
            wanted = a.astype(np.float64) @ weight
            np.testing.assert_allclose(np.asarray(found), wanted, atol=3e-6 * depth)
