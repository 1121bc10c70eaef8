# SPDX-License-Identifier: Apache-2.0
"""Work on an anchor's result moves before a reshape, if it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Expr, Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_ir.passes.sink_reshapes import SINK_RESHAPES
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

X = Var("x", TensorType((1, 3, 6, 1), DType.FLOAT32))


def numbers(*shape: int) -> Expr:
    return constant(np.random.default_rng(2).standard_normal(shape).astype(np.float32))


def conv() -> Call:
    """Return four channels of a line of five, as an image of width 1."""
    attrs = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    return apply("nn.conv", X, numbers(4, 3, 2, 1), **attrs)


def line(x: Expr | None = None) -> Call:
    return apply("reshape", conv() if x is None else x, shape=(1, 4, 5))


def sink(tree: Expr, steps: Any = SINK_RESHAPES) -> list[str]:
    before = IRModule.from_function(Function((X,), tree))
    after = steps.run(before, Remarks()) if steps is SINK_RESHAPES else steps.run(before)
    values = np.random.default_rng(0).standard_normal((1, 3, 6, 1)).astype(np.float32)
    (want,) = evaluate(before.main, {"x": values})
    (got,) = evaluate(after.main, {"x": values})
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return [c.name for c in calls(after.main)]


@pytest.mark.parametrize(
    "other", [numbers(1, 4, 1), numbers(4, 5), numbers(5), numbers(1, 4, 5), numbers(1, 1, 1)]
)
def test_a_constant_is_added_before_an_axis_goes(other: Expr) -> None:
    assert sink(apply("add", line(), other)) == ["nn.conv", "add", "reshape"]
    assert sink(apply("subtract", other, line())) == ["nn.conv", "subtract", "reshape"]


def test_a_bias_behind_a_reshape_is_the_convolutions() -> None:
    tree = apply("nn.relu", apply("add", line(), numbers(1, 4, 1)))
    assert sink(tree, PREPARE) == ["nn.conv", "nn.relu", "reshape"]


def test_a_function_of_each_element_moves_before_any_reshape() -> None:
    flat = apply("reshape", conv(), shape=(2, 10))
    assert sink(apply("tanh", flat)) == ["nn.conv", "tanh", "reshape"]
    assert sink(apply("multiply", flat, numbers())) == ["nn.conv", "multiply", "reshape"]


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(2,), (1, 2), (0, 2)])
def test_a_reduction_moves_before_an_axis_goes(axes: tuple[int, ...], keepdims: bool) -> None:
    tree = apply("max", apply("nn.relu", line()), axes=axes, keepdims=keepdims)
    assert sink(tree) == ["nn.conv", "nn.relu", "max", "reshape"]


def test_an_axis_that_comes_is_none_of_the_anchors() -> None:
    wide = apply("reshape", conv(), shape=(1, 1, 4, 5, 1))
    assert sink(apply("mean", wide, axes=(1, 3))) == ["nn.conv", "mean", "reshape"]
    assert sink(apply("mean", wide, axes=(1,))) == ["nn.conv", "reshape", "mean"]
    assert sink(apply("add", wide, numbers(4, 1, 1))) == ["nn.conv", "add", "reshape"]


TWICE = line()


@pytest.mark.parametrize(
    ("tree", "left"),
    [
        (apply("add", apply("reshape", conv(), shape=(2, 10)), numbers(10)), ["reshape", "add"]),
        (apply("max", apply("reshape", conv(), shape=(4, 5)), axes=(1,)), ["max", "reshape"]),
        (apply("max", apply("reshape", conv(), shape=(2, 10)), axes=(1,)), ["reshape", "max"]),
        (apply("multiply", TWICE, apply("tanh", TWICE)), ["reshape", "tanh", "multiply"]),
        (apply("add", line(), numbers(2, 4, 1)), ["reshape", "add"]),
        (apply("add", line(), numbers(2, 1, 4, 1)), ["reshape", "add"]),
        (apply("nn.softmax", line(), axis=1), ["reshape", "nn.softmax"]),
        (apply("tanh", apply("reshape", X, shape=(3, 6))), ["reshape", "tanh"]),
    ],
)
def test_what_the_shape_decides_stays(tree: Expr, left: list[str]) -> None:
    assert sink(tree)[-len(left) :] == left


def with_ones(sizes: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Return shapes of the same elements, with axes of size 1 anywhere."""
    gaps = st.lists(st.integers(0, 2), min_size=len(sizes) + 1, max_size=len(sizes) + 1)

    def spread(ones: list[int]) -> tuple[int, ...]:
        shape: tuple[int, ...] = (1,) * ones[0]
        for size, count in zip(sizes, ones[1:], strict=True):
            shape += (size, *(1,) * count)
        return shape

    return gaps.map(spread)


@given(st.data())
def test_what_broadcasts_against_a_view_does_so_against_what_is_viewed(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(2, 3), min_size=2, max_size=3).map(tuple))
    before, after = data.draw(with_ones(sizes)), data.draw(with_ones(sizes))
    rank = data.draw(st.integers(0, len(after)))
    other = tuple(data.draw(st.sampled_from((1, size))) for size in after[len(after) - rank :])
    axes = data.draw(st.sets(st.integers(0, len(after) - 1)).map(sorted).map(tuple))
    rows = Var("x", TensorType((*before[:-1], 3), DType.FLOAT32))
    product = apply("matmul", rows, numbers(3, before[-1]))
    view = apply("reshape", product, shape=after)
    tree = apply("sum", apply("add", view, numbers(*other)), axes=axes)
    main = IRModule.from_function(Function((rows,), tree))
    values = np.random.default_rng(0).standard_normal((*before[:-1], 3)).astype(np.float32)
    (want,) = evaluate(main.main, {"x": values})
    (got,) = evaluate(SINK_RESHAPES.run(main, Remarks()).main, {"x": values})
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
