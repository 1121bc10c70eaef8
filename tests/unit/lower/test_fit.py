# SPDX-License-Identifier: Apache-2.0
"""What a CPU has no fast loops for becomes what it has them for, and computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, Var, call, constant, tensor_type
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.types import Size, TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import nn
from intarsia_ir.ops.binary import Add, Power
from intarsia_ir.ops.pooling import MaxPool
from intarsia_ir.ops.qnn_linear import ConvInteger, MatmulInteger
from intarsia_ir.ops.reduce import Argmax, Argmin, ArgOp
from intarsia_ir.ops.sampling import GridSample
from intarsia_ir.tir.expr import PrimExpr
from intarsia_loops.cpu.argmax_reductions import split_argmax
from intarsia_loops.cpu.conv3d import lower_conv3d
from intarsia_loops.cpu.half_precision import widen_half_precision
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.packed_operands import Int8x4
from intarsia_loops.cpu.packing import pack_conv, pack_depthwise
from intarsia_loops.cpu.powers import expand_powers
from intarsia_loops.cpu.relayout import packed_conv, packed_depthwise
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable
from intarsia_testkit.expressions import expected, function_of

from .conftest import carry_out, lower, make_target

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
    inner, outputs, groups = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 1, 2, 3])),
    )
    kernel = [draw(st.integers(1, 3)) for _ in range(3)]
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(3))
    ends = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(3))
    sizes = [draw(st.integers(5, 7)) for _ in range(3)]
    attrs = nn.Conv.Attrs(
        strides=tuple(draw(st.integers(1, 3)) for _ in range(3)),
        padding=ends,
        dilation=dilation,
        groups=groups,
    )
    operands: list[Expr] = [var(DType.FLOAT32, draw(st.integers(1, 2)), groups * inner, *sizes)]
    operands.append(weights(groups * outputs, inner, *kernel))
    operands += [weights(groups * outputs)] if draw(st.booleans()) else []
    return call(nn.Conv, *operands, attrs=attrs)


@settings(deadline=None)
@given(volumes())
def test_volumes_are_convolved_as_images(body: Call) -> None:
    function = function_of(body)
    changed = lower_conv3d(function)
    found = [node for node in calls(changed) if node.name == "nn.conv"]
    assert [tensor_type(node).rank for node in found] == [4]
    same(function, changed)


@pytest.mark.parametrize("low", [0, 2])
def test_volumes_of_open_sizes_are_too(low: int) -> None:
    """Without padding a result along the depth may be none, so that its size must be natural."""
    attrs = nn.Conv.Attrs(
        strides=(1, 1, 1), padding=((low, low),) * 3, dilation=(2, 2, 2), groups=1
    )
    kind = TensorType((variable("N"), 4, *(variable(name) for name in "DHW")), DType.FLOAT32)
    with collecting_guards():
        body = call(nn.Conv, Var("x", kind), weights(6, 4, 3, 3, 3), attrs=attrs)
        changed = lower_conv3d(function_of(body))
        assert [tensor_type(n).rank for n in calls(changed) if n.op is nn.Conv] == [4]
        assert tensor_type(changed.body) == body.type


@pytest.mark.parametrize("change", ["float64", "rank"])
def test_other_convolutions_are_left(change: str) -> None:
    attrs = {"strides": (1,) * 3, "padding": ((0, 0),) * 3, "dilation": (1,) * 3}
    kind = DType.FLOAT64 if change == "float64" else DType.FLOAT32
    weight: Expr = constant(weights(4, 4, 2, 2, 2).data.astype(kind.value))
    x = var(kind, 1, 4, 5, 5, 5)
    if change == "rank":
        x, weight = var(kind, 1, 4, 5, 5), weights(4, 4, 2, 2)
        attrs = {"strides": (1, 1), **PLAIN}
    function = function_of(call(nn.Conv, x, weight, attrs=nn.Conv.Attrs(**attrs)))
    assert lower_conv3d(function) is function


@pytest.mark.parametrize("kind", [DType.FLOAT16, DType.BFLOAT16])
def test_halves_are_multiplied_in_float32(kind: DType) -> None:
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if kind is DType.BFLOAT16 else np.float16
    weight = constant(weights(4, 3, 2, 2).data.astype(dtype))
    attrs = nn.Conv.Attrs(strides=(1, 1), **PLAIN)
    function = function_of(call(nn.Conv, var(kind, 1, 3, 5, 5), weight, attrs=attrs))
    changed = widen_half_precision(function, CpuTiling(4, 14))
    assert names(changed) == ["cast", "nn.conv", "cast"]
    same(function, changed, dtype)


def test_float32_is_left() -> None:
    attrs = nn.Conv.Attrs(strides=(1, 1), **PLAIN)
    x = var(DType.FLOAT32, 1, 3, 5, 5)
    function = function_of(call(nn.Conv, x, weights(4, 3, 2, 2), attrs=attrs))
    assert widen_half_precision(function, CpuTiling(4, 14)) is function


@pytest.mark.parametrize(
    ("shape", "groups", "kept"),
    [((4, 4, 2, 2), 1, True), ((4, 2, 2, 2), 2, True), ((4, 1, 2, 2), 4, False)],
)
def test_convolutions_that_may_add_up_in_float16_are_left(shape, groups, kept) -> None:
    weight = constant(weights(*shape).data.astype(np.float16))
    attrs = nn.Conv.Attrs(strides=(1, 1), groups=groups, **PLAIN)
    function = function_of(call(nn.Conv, var(DType.FLOAT16, 1, 4, 5, 5), weight, attrs=attrs))
    tiling = CpuTiling(4, 14, float16=CpuTiling(8, 13))
    assert (widen_half_precision(function, tiling) is function) is kept


@pytest.mark.parametrize(
    ("channels", "window", "width", "pool"),
    [
        (16, 2, 6, "cpu.max_pool"),
        (3, 2, 6, "cpu.plane_max_pool"),
        (16, 1, 6, "cpu.plane_max_pool"),
        (16, 2, 9, "cpu.plane_max_pool"),
    ],
    ids=["turned", "few channels", "small window", "rows of half a vector"],
)
def test_a_pool_is_turned_if_it_pays(channels: int, window: int, width: int, pool: str) -> None:
    attrs = MaxPool.Attrs(kernel=(window, window), strides=(1, 1), **PLAIN)
    function = function_of(call(MaxPool, var(DType.FLOAT32, 1, channels, 6, width), attrs=attrs))
    changed = use_channels_last(function, CpuTiling(lanes=16, rows=4))
    assert pool in names(changed)
    same(function, changed)


@pytest.mark.parametrize("shape", [(2, 1, 3, 1, 1), (2, 2, 3, 6, 6), (1, 1, 1, 1, 1)])
def test_a_result_of_five_dimensions_is_not_channels_last(shape: tuple[int, ...]) -> None:
    x = var(DType.FLOAT32, 1, 3, 6, 6)
    attrs = nn.Conv.Attrs(strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1)
    function = function_of(
        call(Add, call(nn.Conv, x, weights(3, 3, 1, 1), attrs=attrs), weights(*shape))
    )
    same(function, use_channels_last(function, CpuTiling(lanes=8, rows=4)))


@pytest.mark.parametrize("op", [Argmax, Argmin], ids=["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("keepdims", [False, True], ids=["dropped", "kept"])
def test_a_search_is_two_reductions(op: type[ArgOp], last: bool, keepdims: bool) -> None:
    attrs = ArgOp.Attrs(axis=1, last=last, keepdims=keepdims)
    function = function_of(call(op, var(DType.FLOAT32, 5, 40), attrs=attrs))
    changed = split_argmax(function)
    assert op.name not in names(changed)
    x = np.random.default_rng(0).integers(-3, 3, (5, 40)).astype(np.float32)
    x[1, 7] = x[1, 9] = x[2, 39] = np.nan
    x[3], x[4] = -np.inf, np.inf
    (want,), (got,) = expected(function, [x]), expected(changed, [x])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "shape", "axis"),
    [
        (DType.FLOAT32, (2, 31), 1),
        (DType.FLOAT32, (31, 7), 0),
        (DType.FLOAT32, (variable("N"), 31), 1),
        (DType.FLOAT32, (2, variable("N#1")), 1),
    ],
    ids=["short row", "few columns", "short rows of open number", "length that the model computes"],
)
def test_other_searches_are_left(kind: DType, shape: tuple[Size, ...], axis: int) -> None:
    function = function_of(call(Argmax, var(kind, *shape), attrs=ArgOp.Attrs(axis=axis)))
    assert split_argmax(function) is function


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_a_search_along_an_open_axis_is_two_reductions(last: bool) -> None:
    x = var(DType.FLOAT32, variable("M"), variable("N") + 1, 3)
    attrs = ArgOp.Attrs(axis=1, last=last, keepdims=False)
    changed = split_argmax(function_of(call(Argmax, x, attrs=attrs)))
    assert "argmax" not in names(changed)
    assert str(changed.body.type) == "Tensor[(M, 3), int64]"


@settings(deadline=None, max_examples=40)
@given(
    kind=st.sampled_from(["float64", "int64", "int32", "uint8", "int8", "float32"]),
    shape=st.sampled_from([(3, 5, 9), (33, 2, 3), (2, 33, 2), (4, 3, 40), (2, 1, 8)]),
    axis=st.integers(0, 2),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_searches_of_any_axis_and_type(
    kind: str, shape: tuple[int, ...], axis: int, flags: tuple[bool, bool, bool]
) -> None:
    largest, last, keepdims = flags
    attrs = ArgOp.Attrs(axis=axis, last=last, keepdims=keepdims)
    x = var(DType(kind), *shape)
    function = function_of(call(Argmax if largest else Argmin, x, attrs=attrs))
    changed = split_argmax(function)
    long = shape[axis] >= 32 or np.prod(shape[axis + 1 :]) >= 8
    assert ("argm" not in " ".join(names(changed))) == long
    data = np.random.default_rng(0).integers(0, 4, shape).astype(kind)
    (want,), (got,) = expected(function, [data]), expected(changed, [data])
    np.testing.assert_array_equal(got, want)


@settings(deadline=None, max_examples=30)
@given(
    groups=st.integers(1, 3),
    own=st.integers(1, 19),
    inner=st.integers(1, 3),
    kernel=st.sampled_from([(1, 1), (3, 2), (1, 5)]),
)
def test_weights_of_run_time_are_packed_alike(
    groups: int, own: int, inner: int, kernel: tuple[int, int]
) -> None:
    array = np.random.default_rng(0).standard_normal((groups * own, inner, *kernel))
    array = array.astype(np.float32)
    weight = Var("w", TensorType(array.shape, DType.FLOAT32))
    (got,) = expected(function_of(packed_conv(weight, groups, 8)), [array])
    np.testing.assert_array_equal(got, pack_conv(array, groups, 8))
    (got,) = (
        expected(function_of(packed_depthwise(weight)), [array[:, :1]]) if inner == 1 else (None,)
    )
    if got is not None:
        np.testing.assert_array_equal(got, pack_depthwise(array))


@pytest.mark.parametrize(
    ("weight", "groups", "found"),
    [
        ((6, 4, 3, 3), 1, "cpu.conv"),
        ((6, 2, 3, 3), 2, "cpu.conv"),
        ((4, 1, 3, 4), 4, "cpu.depthwise"),  # rows of results that fill no half of a vector
    ],
    ids=["one group", "two groups", "depthwise"],
)
def test_convolutions_by_given_weights(weight: tuple[int, ...], groups: int, found: str) -> None:
    attrs = nn.Conv.Attrs(strides=(1, 1), groups=groups, **PLAIN)
    params = (var(DType.FLOAT32, 1, 4, 6, 6), Var("w", TensorType(weight, DType.FLOAT32)))
    function = Function(params, call(nn.Conv, *params, attrs=attrs))
    changed = use_channels_last(function, CpuTiling(lanes=8, rows=4))
    assert found in names(changed)
    drawn = np.random.default_rng(0)
    arrays = [drawn.integers(-9, 9, tensor_type(p).static_shape).astype(np.float32) for p in params]
    (want,), (got,) = expected(function, arrays), expected(changed, arrays)
    np.testing.assert_array_equal(got, want)


def test_a_line_by_given_weights() -> None:
    attrs = nn.Conv.Attrs(strides=(2,), padding=((1, 2),), dilation=(1,))
    params = (var(DType.FLOAT32, 2, 3, 11), Var("w", TensorType((5, 3, 4), DType.FLOAT32)))
    function = Function(params, call(nn.Conv, *params, attrs=attrs))
    changed = use_channels_last(function, CpuTiling(lanes=8, rows=4))
    assert "cpu.conv" in names(changed)
    drawn = np.random.default_rng(0)
    arrays = [drawn.integers(-9, 9, tensor_type(p).static_shape).astype(np.float32) for p in params]
    (want,), (got,) = expected(function, arrays), expected(changed, arrays)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("exponent", "kind", "wanted"),
    [
        (3.0, DType.FLOAT32, ["multiply", "multiply"]),
        (4.0, DType.FLOAT64, ["multiply", "multiply"]),
        (3.5, DType.FLOAT32, ["power"]),
        (5.0, DType.FLOAT32, ["power"]),
        (3.0, DType.FLOAT16, ["power"]),
    ],
)
def test_small_whole_powers_are_products(exponent: float, kind: DType, wanted: list[str]) -> None:
    power = constant(np.array(exponent, kind.value))
    function = function_of(call(Power, var(kind, 4, 5), power))
    changed = expand_powers(function)
    assert names(changed) == wanted
    x = np.array([[-3, -0.0, 0, 2, np.inf], *[[-np.inf, np.nan, 1e-20, -1, 7]] * 3], kind.value)
    (want,), (got,) = expected(function, [x]), expected(changed, [x])
    np.testing.assert_allclose(got, want, rtol=1e-6)


def _quads() -> CpuTiling:
    def load(first: PrimExpr) -> PrimExpr:
        return first

    def add(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
        return total + left * right

    return CpuTiling(lanes=8, rows=4, int8x4=Int8x4(load, add))


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("known", [False, True], ids=["zero given", "zero known"])
@pytest.mark.parametrize("flipped", [False, True], ids=["plain", "transposed"])
def test_integer_products_go_four_by_four(signed: bool, known: bool, flipped: bool) -> None:
    kind = np.int8 if signed else np.uint8
    drawn = np.random.default_rng(0)
    weight = drawn.integers(-90, 90, (5, 7) if flipped else (7, 5)).astype(np.int8)
    a = Var("a", TensorType((3, 7), DType(np.dtype(kind).name)))
    zero = Var("z", TensorType((), DType(np.dtype(kind).name)))
    params = (a,) if known else (a, zero)
    w_zero = np.array([1, -2, 3, 0, 5], np.int8)
    operands = (a, constant(np.array(11, kind)) if known else zero, constant(weight))
    attrs = nn.Matmul.Attrs(transpose_b=flipped)
    body = call(MatmulInteger, *operands, constant(w_zero), attrs=attrs)
    function = Function(params, body)
    changed = use_channels_last(function, _quads())
    assert "cpu.qdense" in names(changed)
    arrays = [drawn.integers(0, 100, (3, 7)).astype(kind), np.array(11, kind)][: len(params)]
    (want,), (got,) = expected(function, arrays), expected(changed, arrays)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("groups", [1, 4], ids=["deep", "depthwise"])
def test_integer_convolutions_go_four_by_four(groups: int) -> None:
    drawn = np.random.default_rng(0)
    weight = drawn.integers(-90, 90, (4, 4 // groups, 3, 3)).astype(np.int8)
    x = Var("x", TensorType((1, 4, 6, 6), DType.INT8))
    constants = (np.array(-3, np.int8), weight, np.array(2, np.int8))
    attrs = nn.Conv.Attrs(strides=(1, 1), padding=((1, 1),) * 2, dilation=(1, 1), groups=groups)
    function = Function((x,), call(ConvInteger, x, *map(constant, constants), attrs=attrs))
    changed = use_channels_last(function, _quads())
    assert "cpu.qdepthwise" in names(changed) or "cpu.qconv" in names(changed)
    data = drawn.integers(-100, 100, (1, 4, 6, 6)).astype(np.int8)
    (want,), (got,) = expected(function, [data]), expected(changed, [data])
    np.testing.assert_array_equal(got, want)


def test_an_integer_product_whose_weights_are_given_is_left() -> None:
    a = Var("a", TensorType((3, 4), DType.UINT8))
    b = Var("b", TensorType((4, 5), DType.UINT8))
    zero = constant(np.array(0, np.uint8))
    body = call(MatmulInteger, a, zero, b, zero, attrs=nn.Matmul.Attrs())
    function = Function((a, b), body)
    assert names(use_channels_last(function, _quads())) == ["qnn.matmul_integer"]


@pytest.mark.parametrize("shape", [(8, 9), (2, 8, 16)], ids=["matrix", "stack"])
def test_a_transposed_matrix_of_run_time_is_turned_first(shape: tuple[int, ...]) -> None:
    a = Var("a", TensorType((*shape[:-2], 3, shape[-1]), DType.FLOAT32))
    b = Var("b", TensorType(shape, DType.FLOAT32))
    function = Function((a, b), call(nn.Matmul, a, b, attrs=nn.Matmul.Attrs(transpose_b=True)))
    changed = use_channels_last(function, CpuTiling(lanes=8, rows=4))
    assert names(changed) == ["transpose", "matmul"]
    drawn = np.random.default_rng(0)
    arrays = [drawn.integers(-9, 9, tensor_type(p).static_shape).astype(np.float32) for p in (a, b)]
    (want,), (got,) = expected(function, arrays), expected(changed, arrays)
    np.testing.assert_array_equal(got, want)


def test_a_small_transposed_matrix_is_left() -> None:
    a, b = (Var(name, TensorType((4, 7), DType.FLOAT32)) for name in "ab")
    function = Function((a, b), call(nn.Matmul, a, b, attrs=nn.Matmul.Attrs(transpose_b=True)))
    assert names(use_channels_last(function, CpuTiling(lanes=8, rows=4))) == ["matmul"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("channels", [16, 3], ids=["many channels", "few"])
def test_a_grid_is_sampled_channels_last_if_there_are_many(mode: str, channels: int) -> None:
    x = Var("x", TensorType((2, channels, 5, 6), DType.FLOAT32))
    grid = Var("g", TensorType((2, 4, 3, 2), DType.FLOAT32))
    attrs = GridSample.Attrs(mode=mode)
    function = Function((x, grid), call(GridSample, x, grid, attrs=attrs))
    changed = use_channels_last(function, CpuTiling(lanes=8, rows=4))
    assert ("cpu.grid_sample" in names(changed)) == (channels == 16)
    drawn = np.random.default_rng(0)
    arrays = [drawn.standard_normal(tensor_type(p).static_shape) for p in (x, grid)]
    given_arrays = [array.astype(np.float32) for array in arrays]
    (want,), (got,) = expected(function, given_arrays), expected(changed, given_arrays)
    np.testing.assert_array_equal(got, want)
    (computed,) = carry_out(lower(changed, (), target=make_target()), given_arrays)
    np.testing.assert_allclose(computed, want, rtol=1e-5, atol=1e-5)
