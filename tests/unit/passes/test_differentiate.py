# SPDX-License-Identifier: Apache-2.0
"""Derivatives equal differences of the function itself, taken in float64."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import (
    Expr,
    Function,
    If,
    Var,
    call,
    constant,
    get_item,
    make_tuple,
    tensor_type,
)
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.derivative import DERIVATIVES
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.differentiate import differentiate
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_testkit.cases import cases_by_operator
from intarsia_testkit.cases.case import Case

STEP = 1e-6
MOST_CASES = 8
UNDEFINED = ("max", "mean", "min")
"""What has no finite value where there are no elements."""
DOMAINS = {
    **dict.fromkeys(("log", "sqrt", "rsqrt", "power", "reciprocal", "divide"), (0.5, 2.0)),
    **dict.fromkeys(("acos", "asin", "atanh", "log1p", "tan"), (-0.9, 0.9)),
    **dict.fromkeys(("floor_mod", "trunc_mod", "nn.batch_norm"), (0.5, 2.0)),
    "acosh": (1.2, 4.0),
}
"""Where operands are drawn from, if not from -2 to 2."""


def node(name: str, *args: Expr, **attrs: Any) -> Expr:
    return call(OPERATORS[name], *args, attrs=OPERATORS[name].Attrs(**attrs))


def sizes(value: Expr) -> tuple[int, ...]:
    return tensor_type(value).static_shape


def run(
    params: Sequence[Var], outputs: Sequence[Expr], values: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    named = {param.name: value for param, value in zip(params, values, strict=True)}
    return evaluate(Function(tuple(params), make_tuple(outputs)), named)


def check(y: Expr, params: Sequence[Var], values: Sequence[np.ndarray], *, among: int) -> None:
    """Compare the derivatives of a scalar by the first parameters with central differences."""
    rng = np.random.default_rng(7)
    xs, fixed = params[:among], list(values[among:])
    slopes = run(params, differentiate(y, xs), values)
    for x, slope in zip(xs, slopes, strict=True):
        assert slope.shape == sizes(x)
        assert slope.dtype == np.float64
    for _ in range(3):
        ways = [rng.standard_normal(value.shape) for value in values[:among]]
        ends = [
            run(params, [y], [*_moved(values, ways, sign * STEP), *fixed])[0] for sign in (1, -1)
        ]
        wanted = (ends[0] - ends[1]) / (2 * STEP)
        found = sum((slope * way).sum() for slope, way in zip(slopes, ways, strict=True))
        scale = sum(np.abs(slope * way).sum() for slope, way in zip(slopes, ways, strict=True))
        assert abs(found - wanted) <= 1e-6 * scale + 1e-6, (found, wanted)


def _moved(
    values: Sequence[np.ndarray], ways: Sequence[np.ndarray], length: float
) -> list[np.ndarray]:
    return [value + length * way for value, way in zip(values, ways, strict=False)]


def weighted(results: Sequence[Expr], rng: np.random.Generator) -> Expr:
    """The sum of all elements of all results, each times a number of its own."""
    total: Expr = constant(np.zeros(()))
    for result in results:
        weights = rng.standard_normal(sizes(result))
        product = node("multiply", result, constant(weights))
        total = node("add", total, node("sum", product, axes=tuple(range(weights.ndim))))
    return total


def float_cases(name: str) -> list[Case]:
    """Calls with floats, one of those that differ in the element type alone."""
    found = {
        (tuple(x.shape for x in case.operands), str(case.attrs)): case
        for case in cases_by_operator()[name]
        if any(x.dtype.kind in "fV" for x in case.operands)
        and not (name in UNDEFINED and any(x.size == 0 for x in case.operands))
    }
    every = list(found.values())
    return every[:: max(1, len(every) // MOST_CASES)]


DIFFERENTIABLE = {name for name, op in OPERATORS.items() if DERIVATIVES.get(op) is not None}


@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE - {"cast"}))
def test_equals_differences(name: str) -> None:
    cases = float_cases(name)
    checked = 0
    for case in cases:
        rng = np.random.default_rng(zlib.crc32(str(case).encode()))
        low, high = DOMAINS.get(name, (-2.0, 2.0))
        floats = [n for n, x in enumerate(case.operands) if x.dtype.kind in "fV"]
        rest = [n for n, x in enumerate(case.operands) if x.dtype.kind not in "fV"]
        values: list[np.ndarray] = [
            np.asarray(rng.uniform(low, high, case.operands[n].shape)) for n in floats
        ]
        values += [np.asarray(case.operands[n]) for n in rest]
        params = [
            Var(f"x{n}", TensorType(value.shape, DType(value.dtype.name)))
            for n, value in enumerate(values)
        ]
        args = [params[[*floats, *rest].index(n)] for n in range(len(values))]
        y = weighted(case.call(*args), rng)
        if case.attrs.get("mode") in ("edge", "reflect", "wrap") or case.attrs.get("batch_dims"):
            with pytest.raises(UnsupportedError, match=f"operator '{name}'"):
                differentiate(y, params[: len(floats)])
            continue
        check(y, params, values, among=len(floats))
        checked += 1
    assert checked


def test_cast_goes_through_floats_alone() -> None:
    x = Var("x", TensorType((3,), DType.FLOAT64))
    values = np.array([1.5, 2.5, -3.0])
    half = node("cast", node("cast", x, dtype=DType.FLOAT16), dtype=DType.FLOAT64)
    whole = node("cast", node("cast", x, dtype=DType.INT32), dtype=DType.FLOAT64)
    slopes = differentiate(node("multiply", node("add", half, whole), x), [x])
    assert np.allclose(run([x], slopes, [values])[0], values + np.trunc(values) + values)


X = Var("x", TensorType((2, 3), DType.FLOAT64))
Y = Var("y", TensorType((3,), DType.FLOAT64))
UNARY = ("sin", "tanh", "sigmoid", "negative", "nn.silu", "cos")
BINARY = ("add", "multiply", "subtract", "maximum")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_shared_values(data: st.DataObject) -> None:
    """Values that several nodes use get the shares of all of them."""
    pool: list[Expr] = [X, Y]
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from((*UNARY, *BINARY, "nn.softmax", "mean")))
        a, b = (data.draw(st.sampled_from(pool)) for _ in range(2))
        if name in BINARY:
            pool.append(node(name, a, b))
        elif name == "nn.softmax":
            pool.append(node(name, a, axis=len(sizes(a)) - 1))
        elif name == "mean":
            axes = (len(sizes(a)) - 1,)
            pool.append(node(name, a, axes=axes, keepdims=True))
        else:
            pool.append(node(name, a))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values = [np.asarray(rng.uniform(-1, 1, sizes(var))) for var in (X, Y)]
    check(weighted([pool[-1]], rng), [X, Y], values, among=2)


def test_variables_are_independent() -> None:
    """``y = u * x`` with ``u = sin(x)``: by u it is x, by x it is u, and by x alone the whole."""
    u = node("sin", Y)
    y = node("multiply", u, Y)
    value = np.array([0.5, 1.0, 2.0])
    by_u, by_y = run([Y], differentiate(y, [u, Y]), [value])
    assert np.allclose(by_u, value)
    assert np.allclose(by_y, np.sin(value))
    (alone,) = run([Y], differentiate(y, [Y]), [value])
    assert np.allclose(alone, np.sin(value) + value * np.cos(value))


def test_of_itself_and_of_what_does_not_matter() -> None:
    ones, zeros = run([X, Y], differentiate(X, [X, Y]), [np.ones((2, 3)), np.ones(3)])
    assert ones.tolist() == [[1] * 3] * 2
    assert zeros.tolist() == [0] * 3


def test_twice() -> None:
    """The second derivative of ``x**3 + exp(2 x)`` is ``6 x + 4 exp(2 x)``."""
    cube = node("multiply", node("multiply", Y, Y), Y)
    grown = node("exp", node("add", Y, Y))
    (first,) = differentiate(node("add", cube, grown), [Y])
    (second,) = differentiate(first, [Y])
    value = np.array([-1.0, 0.5, 1.0])
    assert np.allclose(run([Y], [second], [value])[0], 6 * value + 4 * np.exp(2 * value))


def test_one_part_of_a_split() -> None:
    parts = node("split", X, sections=(1, 2), axis=1)
    (slope,) = differentiate(get_item(parts, 1), [X])
    assert run([X], [slope], [np.ones((2, 3))])[0].tolist() == [[0, 1, 1], [0, 1, 1]]


def test_equal_maxima_share() -> None:
    value = np.array([1.0, 3.0, 3.0])
    (slope,) = differentiate(node("max", Y, axes=(0,)), [Y])
    assert run([Y], [slope], [value])[0].tolist() == [0, 0.5, 0.5]


def test_a_product_with_zeros() -> None:
    (slope,) = differentiate(node("prod", Y, axes=(0,)), [Y])
    assert run([Y], [slope], [np.array([2.0, 0.0, 5.0])])[0].tolist() == [0, 10, 0]


def test_is_linear() -> None:
    """A chain of 6000 calls, every value used twice, takes a walk and not 2**6000."""
    value: Expr = Y
    for _ in range(3_000):
        value = node("multiply", node("add", value, value), constant(np.asarray(0.5)))
    start = time.perf_counter()
    (slope,) = differentiate(value, [Y])
    assert time.perf_counter() - start < 10
    assert np.allclose(run([Y], [slope], [np.ones(3)])[0], 1)


def test_refuses_what_has_no_rule() -> None:
    image = Var("x", TensorType((1, 3, 2, 2), DType.FLOAT64))
    normal = node("nn.lrn", image, size=3)
    with pytest.raises(UnsupportedError, match=r"derivative of operator 'nn\.lrn'") as caught:
        differentiate(normal, [image])
    assert "matmul" in caught.value.hint


def test_refuses_a_choice_at_run_time() -> None:
    condition = Var("c", TensorType((), DType.BOOL))
    chosen = If(condition, node("sin", Y), Y, Y.type)
    with pytest.raises(UnsupportedError, match="chosen at run time"):
        differentiate(chosen, [Y])


def test_refuses_unknown_sizes() -> None:
    open_ = Var("x", TensorType((variable("N"),), DType.FLOAT64))
    with pytest.raises(UnsupportedError, match="a size is not known"):
        differentiate(node("sin", open_), [open_])
