# SPDX-License-Identifier: Apache-2.0
"""Products whose rows compete for a cache: they are copied, or not, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_loops.cpu.aliased_rows import APART
from intarsia_runtime.artifact.plan import THREADS
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import value_of
from intarsia_testkit.expressions import apply


@pytest.mark.parametrize("cpu", ["native", "haswell", "x86-64"])
@pytest.mark.parametrize("columns", [16, 31, 64, 1200])
@pytest.mark.parametrize(("rows", "depth"), [(31, 1024), (5, 1024), (29, 1023), (28, 16384)])
def test_products_of_rows_in_one_set_of_a_cache(rows, depth, columns, cpu) -> None:
    check_product((rows, depth), (depth, columns), cpu)


@pytest.mark.parametrize("cpu", ["native", "haswell", "x86-64"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 100, 40), (2, 40, 1024)),  # all rows of ``b`` in one set
        ((2, 250, 384), (2, 384, 64)),  # rows of which the sets hold a third
        ((110, 256), (2, 256, 3136)),  # each row in a page of its own
        ((250, 1024), (1, 1024, 289)),  # more rows than the cache has lines, and a column more
    ],
)
def test_products_of_distant_rows(a: tuple[int, ...], b: tuple[int, ...], cpu: str) -> None:
    check_product(a, b, cpu)


def check_product(a: tuple[int, ...], b: tuple[int, ...], cpu: str) -> None:
    """Compare a product of random numbers with NumPy."""
    rng = np.random.default_rng(a[-2])
    data = {"a": rng.standard_normal(a, np.float32), "b": rng.standard_normal(b, np.float32)}
    operands = [Var(name, TensorType(x.shape, DType.FLOAT32)) for name, x in data.items()]
    model = IRModule.from_function(Function(tuple(operands), apply("matmul", *operands)))
    with intarsia.build(model, f"llvm -mcpu={cpu}").load() as executor:
        (found,) = executor.run(data).values()
    wanted = data["a"].astype(np.float64) @ data["b"]
    np.testing.assert_allclose(np.asarray(found), wanted, atol=3e-6 * a[-1])


@pytest.mark.parametrize("cpu", ["native", "haswell"])
@pytest.mark.parametrize("depth", [1024, 1023])
def test_an_open_number_of_such_rows(depth: int, cpu: str) -> None:
    """Large tiles read a copy, small ones the rows themselves; the last ones overlap."""
    rng = np.random.default_rng(depth)
    weight = rng.standard_normal((depth, 40)).astype(np.float32)
    with intarsia.build(open_product(weight), f"llvm -mcpu={cpu}").load() as executor:
        for rows in (0, 1, 5, 13, 14, 15, 27, 28, 43, 99, 250):
            a = rng.standard_normal((rows, depth)).astype(np.float32)
            (found,) = executor.run({"a": a}).values()
            wanted = a.astype(np.float64) @ weight
            np.testing.assert_allclose(np.asarray(found), wanted, atol=3e-6 * depth)


def open_product(weight: np.ndarray) -> IRModule:
    """Return a product of an open number of rows."""
    data = Var("a", TensorType((variable("M"), len(weight)), DType.FLOAT32))
    return IRModule.from_function(Function((data,), apply("matmul", data, constant(weight))))


@pytest.mark.parametrize("depth", [1024, 2048])
def test_a_copy_of_rows_takes_memory_for_as_many_large_tiles_as_there_are(depth: int) -> None:
    weight = np.ones((depth, 40), np.float32)
    artifact = intarsia.build(open_product(weight), "llvm -mcpu=skylake-avx512")
    sizes = artifact.passport.plan.open
    assert sizes is not None
    taken = [
        sum(value_of(slot, {"M": rows, THREADS: 2}) for slot in sizes.slots)
        for rows in (0, 1, 13, 14, 27, 500)
    ]
    tile = 2 * 14 * (depth + APART) * 4
    assert taken[:3] == [0, 0, 0]
    assert all(tile <= size <= tile + 128 * 14 for size in taken[3:5]), taken
    assert taken[5] >= tile
