# SPDX-License-Identifier: Apache-2.0
"""Products with one-hot rows become look-ups; work behind a small table is done to the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

X = Var("x", TensorType((2, 9, 1), DType.INT32))
CATEGORIES = [0, 4, 5, -1, 1, 2, 3, -(2**31), 2**31 - 1]
LOOKED_UP = ["reshape", "minimum", "maximum", "take"]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def one_hot(counted: Sequence[int] = range(5), x: Expr = X) -> Expr:
    numbers = constant(np.asarray([[counted]], np.dtype(x.type.dtype.value)))
    return apply("cast", apply("equal", x, numbers), dtype=DType.FLOAT32)


def product(hot: Expr, matrix: np.ndarray | None = None) -> Expr:
    return apply("matmul", hot, constant(weights(5, 3) if matrix is None else matrix))


def prepare(tree: Expr, x: Var = X) -> list[str]:
    before = IRModule.from_function(Function((x,), tree))
    after = PREPARE.run(before, check=True)
    values = np.resize(np.asarray(CATEGORIES).astype(x.type.dtype.value), x.type.static_shape)
    (want,) = evaluate(before.main, {"x": values})
    (got,) = evaluate(after.main, {"x": values})
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    return [c.name for c in calls(after.main)]


def test_a_product_with_one_hot_rows_is_a_look_up() -> None:
    assert prepare(product(one_hot())) == LOOKED_UP


def test_the_numbers_may_begin_anywhere_and_stand_first() -> None:
    numbers = constant(np.asarray([3, 4, 5, 6, 7], np.int32))
    hot = apply("cast", apply("equal", numbers, X), dtype=DType.FLOAT32)
    assert prepare(product(hot)) == ["reshape", "subtract", *LOOKED_UP[1:]]


@pytest.mark.parametrize(
    "work",
    [
        lambda rows: apply("nn.gelu", apply("add", rows, constant(weights(1, 1, 3)))),
        lambda rows: apply("subtract", constant(np.float32([[0.5]])), apply("tanh", rows)),
        lambda rows: apply("multiply", rows, constant(weights(3))),
    ],
)
def test_work_on_each_element_is_done_to_the_table(work: Any) -> None:
    assert prepare(work(product(one_hot()))) == LOOKED_UP


@pytest.mark.parametrize(
    "rest",
    [
        constant(weights(9, 1)),  # another number for each row
        constant(weights(2, 9, 3)),
        apply("cast", X, dtype=DType.FLOAT32),
    ],
)
def test_what_differs_from_row_to_row_is_computed_behind_the_look_up(rest: Expr) -> None:
    left = prepare(apply("add", product(one_hot()), rest))
    assert left[-1] == "add"
    assert "take" in left


def test_work_is_not_done_to_a_table_larger_than_the_result() -> None:
    table, rows = constant(weights(100, 3)), apply("reshape", X, shape=(2, 9))
    assert prepare(apply("nn.relu", apply("take", table, rows, axis=0)))[-2:] == ["take", "nn.relu"]


def inexact(*, bad: float) -> np.ndarray:
    matrix = weights(5, 3)
    matrix[2, 1] = bad
    return matrix


@pytest.mark.parametrize(
    "tree",
    [
        product(one_hot([0, 1, 2, 4, 3])),
        product(one_hot([0, 0, 1, 2, 3])),
        apply("matmul", one_hot(), constant(weights(3, 5)), transpose_b=True),
        apply("matmul", one_hot(), constant(weights(2, 5, 3))),
        product(one_hot(x=apply("reshape", apply("cast", X, dtype=DType.INT8), shape=(2, 9, 1)))),
        product(
            apply("cast", apply("equal", X, apply("add", X, X)), dtype=DType.FLOAT32), weights(1, 3)
        ),
    ],
)
def test_other_products_stay(tree: Expr) -> None:
    assert "matmul" in prepare(tree)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_weights_that_are_no_numbers_reach_all_rows_of_a_product(bad: float) -> None:
    assert "matmul" in prepare(product(one_hot(), inexact(bad=bad)))


def test_a_size_known_at_run_time_only_stays_a_product() -> None:
    open_x = Var("x", TensorType(("n", 1), DType.INT32))
    tree = apply("matmul", one_hot(x=open_x), constant(weights(5, 3)))
    after = PREPARE.run(IRModule.from_function(Function((open_x,), tree)))
    assert "matmul" in [c.name for c in calls(after.main)]


def test_a_remark_says_what_became_a_look_up() -> None:
    remarks = Remarks()
    PREPARE.run(IRModule.from_function(Function((X,), product(one_hot()))), remarks=remarks)
    assert [r.message for r in remarks.found] == ["a product picks rows of a table of 5"]
