# SPDX-License-Identifier: Apache-2.0
"""What a CPU has no fast loops for becomes what it has them for, and computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from intarsia_testkit.expressions import expected, function_of

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr, Function, Var, call, constant, tensor_type
from intarsia.ir.types import TensorType
from intarsia.ir.walk import calls
from intarsia.lower.cpu.halves import widen_halves
from intarsia.lower.cpu.layout import use_channels_last
from intarsia.lower.cpu.searches import split_searches
from intarsia.lower.cpu.tile import Shape
from intarsia.lower.cpu.volumes import flatten_volumes
from intarsia.ops import nn
from intarsia.ops.pooling import MaxPool
from intarsia.ops.reduce import Argmax, Argmin, ArgOp

PLAIN = {"padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


def var(kind: DType, *shape: int | str) -> Var:
    return Var("x", TensorType(shape, kind))


def weights(*shape: int) -> Constant:
    drawn = np.random.default_rng(sum(shape)).integers(-9, 9, shape)
    return constant(drawn.astype(np.float32))


def names(function: Function) -> list[str]:
    return [node.name for node in calls(function)]


def same(before: Function, after: Function, kind: type = np.float32) -> None:
    shape = tensor_type(before.params[0]).static_shape
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(kind)
    (want,), (got,) = expected(before, [x]), expected(after, [x])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@st.composite
def volumes(draw: st.DrawFn) -> Call:
    """Convolutions of volumes with windows, strides, dilation and padding up to 3."""
    inner, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(3)]
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(3))
    ends = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(3))
    sizes = [draw(st.integers(5, 7)) for _ in range(3)]
    attrs = nn.Conv.Attrs(
        strides=tuple(draw(st.integers(1, 3)) for _ in range(3)), padding=ends, dilation=dilation
    )
    operands: list[Expr] = [var(DType.FLOAT32, draw(st.integers(1, 2)), inner, *sizes)]
    operands.append(weights(outputs, inner, *kernel))
    operands += [weights(outputs)] if draw(st.booleans()) else []
    return call(nn.Conv, *operands, attrs=attrs)


@settings(deadline=None)
@given(volumes())
def test_volumes_are_convolved_as_pictures(body: Call) -> None:
    function = function_of(body)
    changed = flatten_volumes(function)
    found = [node for node in calls(changed) if node.name == "nn.conv"]
    assert [tensor_type(node).rank for node in found] == [4]
    same(function, changed)


@pytest.mark.parametrize("change", ["groups", "float64", "weight", "rank"])
def test_other_convolutions_are_left(change: str) -> None:
    attrs = {"strides": (1,) * 3, "padding": ((0, 0),) * 3, "dilation": (1,) * 3}
    kind = DType.FLOAT64 if change == "float64" else DType.FLOAT32
    weight: Expr = constant(weights(4, 4, 2, 2, 2).data.astype(kind.value))
    x = var(kind, 1, 4, 5, 5, 5)
    if change == "groups":
        weight, attrs["groups"] = weights(4, 2, 2, 2, 2), 2
    elif change == "weight":
        weight = Var("w", TensorType((4, 4, 2, 2, 2), kind))
    elif change == "rank":
        x, weight = var(kind, 1, 4, 5, 5), weights(4, 4, 2, 2)
        attrs = {"strides": (1, 1), **PLAIN}
    function = function_of(call(nn.Conv, x, weight, attrs=nn.Conv.Attrs(**attrs)))
    assert flatten_volumes(function) is function


@pytest.mark.parametrize("kind", [DType.FLOAT16, DType.BFLOAT16])
def test_halves_are_multiplied_in_float32(kind: DType) -> None:
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if kind is DType.BFLOAT16 else np.float16
    weight = constant(weights(4, 3, 2, 2).data.astype(dtype))
    attrs = nn.Conv.Attrs(strides=(1, 1), **PLAIN)
    function = function_of(call(nn.Conv, var(kind, 1, 3, 5, 5), weight, attrs=attrs))
    changed = widen_halves(function)
    assert names(changed) == ["cast", "nn.conv", "cast"]
    same(function, changed, dtype)


def test_float32_is_left() -> None:
    attrs = nn.Conv.Attrs(strides=(1, 1), **PLAIN)
    x = var(DType.FLOAT32, 1, 3, 5, 5)
    function = function_of(call(nn.Conv, x, weights(4, 3, 2, 2), attrs=attrs))
    assert widen_halves(function) is function


@pytest.mark.parametrize(
    ("channels", "window", "pool"),
    [(16, 2, "cpu.max_pool"), (3, 2, "nn.max_pool"), (16, 1, "nn.max_pool")],
    ids=["turned", "few channels", "small window"],
)
def test_a_pool_is_turned_if_it_pays(channels: int, window: int, pool: str) -> None:
    attrs = MaxPool.Attrs(kernel=(window, window), strides=(1, 1), **PLAIN)
    function = function_of(call(MaxPool, var(DType.FLOAT32, 1, channels, 6, 6), attrs=attrs))
    changed = use_channels_last(function, Shape(lanes=8, rows=4))
    assert pool in names(changed)
    same(function, changed)


@pytest.mark.parametrize("op", [Argmax, Argmin], ids=["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("keepdims", [False, True], ids=["dropped", "kept"])
def test_a_search_is_two_reductions(op: type[ArgOp], last: bool, keepdims: bool) -> None:
    attrs = ArgOp.Attrs(axis=1, last=last, keepdims=keepdims)
    function = function_of(call(op, var(DType.FLOAT32, 5, 40), attrs=attrs))
    changed = split_searches(function)
    assert op.name not in names(changed)
    x = np.random.default_rng(0).integers(-3, 3, (5, 40)).astype(np.float32)
    x[1, 7] = x[1, 9] = x[2, 39] = np.nan
    x[3], x[4] = -np.inf, np.inf
    (want,), (got,) = expected(function, [x]), expected(changed, [x])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "shape", "axis"),
    [(DType.INT32, (2, 40), 1), (DType.FLOAT32, (2, 31), 1), (DType.FLOAT32, (40, 40), 0)],
    ids=["integers", "short row", "column"],
)
def test_other_searches_are_left(kind: DType, shape: tuple[int, ...], axis: int) -> None:
    function = function_of(call(Argmax, var(kind, *shape), attrs=ArgOp.Attrs(axis=axis)))
    assert split_searches(function) is function
