# SPDX-License-Identifier: Apache-2.0
"""Convolutions, products, pools, reductions, normalizations against ONNX's reference and NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(11)


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(0, 5, shape).astype(dtype)
    return RNG.uniform(-1, 1, shape).astype(dtype)


def flat(padding: tuple[tuple[int, int], ...]) -> list[int]:
    return [low for low, _ in padding] + [high for _, high in padding]


# data, weight, strides, padding, dilation, groups
CONVOLUTIONS = [
    ((2, 3, 5), (4, 3, 2), (1,), ((0, 0),), (1,), 1),
    ((1, 3, 5, 6), (4, 3, 3, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 3, 5, 6), (4, 3, 3, 3), (2, 1), ((1, 0), (1, 2)), (1, 1), 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    ((1, 4, 6, 6), (8, 1, 3, 3), (1, 2), ((1, 1), (1, 1)), (2, 1), 4),
    ((1, 4, 6, 6), (6, 2, 3, 3), (1, 2), ((0, 1), (1, 1)), (1, 2), 2),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 1), (1, 2, 1), ((1, 0), (0, 0), (0, 1)), (1, 1, 1), 1),
    ((1, 4, 3, 3), (5, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((0, 4, 3, 3), (5, 4, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize(
    ("data", "weight", "strides", "padding", "dilation", "groups"), CONVOLUTIONS
)
def test_conv(run_operator, data, weight, strides, padding, dilation, groups, dtype, with_bias):
    x, w = draw(*data, dtype=dtype), draw(*weight, dtype=dtype)
    bias = [draw(weight[0], dtype=dtype)] if with_bias else []
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    (found,) = run_operator("nn.conv", x, w, *bias, **attrs)
    wanted = convolve(x.astype(np.float64), w.astype(np.float64), attrs)
    if bias:
        wanted = wanted + bias[0].astype(np.float64).reshape(-1, *[1] * (x.ndim - 2))
    tolerance = 1e-2 if dtype == "float16" else 1e-4
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


def convolve(x, w, attrs):
    """The definition, one element at a time."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *attrs["padding"]])
    outputs, inner = w.shape[:2]
    sizes = [
        (padded.shape[2 + d] - (w.shape[2 + d] - 1) * attrs["dilation"][d] - 1)
        // attrs["strides"][d]
        + 1
        for d in range(rank)
    ]
    result = np.zeros((x.shape[0], outputs, *sizes))
    for o in range(outputs):
        first = o // (outputs // attrs["groups"]) * inner
        for place in np.ndindex(*sizes):
            window = tuple(
                slice(p * s, p * s + (k - 1) * d + 1, d)
                for p, s, k, d in zip(
                    place, attrs["strides"], w.shape[2:], attrs["dilation"], strict=True
                )
            )
            part = padded[(slice(None), slice(first, first + inner), *window)]
            result[(slice(None), o, *place)] = (part * w[o]).sum(axis=tuple(range(1, x.ndim)))
    return result


# data, weight, strides, padding, dilation, groups, output_padding
TRANSPOSED = [
    ((2, 3, 4), (3, 2, 3), (2,), ((0, 0),), (1,), 1, ()),
    ((1, 3, 3, 4), (3, 2, 3, 3), (2, 1), ((1, 0), (1, 1)), (1, 1), 1, (1, 0)),
    ((1, 4, 3, 3), (4, 2, 2, 3), (1, 3), ((0, 0), (0, 1)), (2, 1), 2, (0, 2)),
    ((1, 4, 3, 3), (4, 1, 2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), 4, ()),
    ((1, 2, 2, 2, 2), (2, 3, 2, 1, 2), (1, 2, 1), ((0, 0),) * 3, (1, 1, 1), 1, ()),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("data", "weight", "strides", "padding", "dilation", "groups", "output_padding"), TRANSPOSED
)
def test_conv_transpose(
    check_operator, data, weight, strides, padding, dilation, groups, output_padding, with_bias
):
    x, w = draw(*data), draw(*weight)
    bias = [draw(weight[1] * groups)] if with_bias else []
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    wanted = scatter(x, w, attrs, output_padding or (0,) * len(strides))
    if bias:
        wanted = wanted + bias[0].reshape(-1, *[1] * (x.ndim - 2))
    check_operator(wanted, "nn.conv_transpose", x, w, *bias, output_padding=output_padding, **attrs)


def test_conv_transpose_with_negative_padding(check_operator):
    x, w = draw(1, 1, 3), draw(1, 1, 2)
    attrs = {"strides": (2,), "padding": ((0, 0),), "dilation": (1,)}
    wanted = np.pad(scatter(x, w, {**attrs, "groups": 1}, (0,)), [(0, 0), (0, 0), (1, 2)])
    check_operator(wanted, "nn.conv_transpose", x, w, **{**attrs, "padding": ((-1, -2),)})


def scatter(x, w, attrs, output_padding):
    """The definition: every element of the data adds the weight, scaled, to the result."""
    rank, groups = x.ndim - 2, attrs["groups"]
    inputs, inner, *kernel = w.shape
    full = [
        (x.shape[2 + d] - 1) * attrs["strides"][d]
        + (kernel[d] - 1) * attrs["dilation"][d]
        + 1
        + output_padding[d]
        for d in range(rank)
    ]
    result = np.zeros((x.shape[0], inner * groups, *full), x.dtype)
    for n, c, *place in np.ndindex(*x.shape):
        group = c // (inputs // groups)
        for o, *tap in np.ndindex(inner, *kernel):
            at = [
                p * s + t * d
                for p, s, t, d in zip(place, attrs["strides"], tap, attrs["dilation"], strict=True)
            ]
            result[(n, group * inner + o, *at)] += x[(n, c, *place)] * w[(c, o, *tap)]
    crop = [
        slice(low, size - high) for size, (low, high) in zip(full, attrs["padding"], strict=True)
    ]
    return result[(slice(None), slice(None), *crop)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize(
    ("a", "b", "transpose_a", "transpose_b"),
    [
        ((2, 3), (3, 4), False, False),
        ((3, 2), (3, 4), True, False),
        ((2, 3), (4, 3), False, True),
        ((5, 2, 3), (5, 3, 4), False, False),
        ((5, 2, 3), (3, 4), False, False),
        ((2, 1, 2, 3), (4, 3, 2), False, False),
        ((1, 2, 3), (2, 4, 3), False, True),
        ((2, 0), (0, 3), False, False),
    ],
)
def test_matmul(check_operator, a, b, transpose_a, transpose_b, dtype):
    x, y = draw(*a, dtype=dtype), draw(*b, dtype=dtype)
    left = x.swapaxes(-1, -2) if transpose_a else x
    right = y.swapaxes(-1, -2) if transpose_b else y
    wide = np.float32 if dtype == "float16" else dtype
    wanted = np.matmul(left.astype(wide), right.astype(wide)).astype(dtype)
    check_operator(wanted, "matmul", x, y, transpose_a=transpose_a, transpose_b=transpose_b)


# shape, kernel, strides, padding, dilation, ceil_mode
POOLS = [
    ((1, 2, 7), (3,), (2,), ((1, 1),), (1,), False),
    ((2, 2, 5, 6), (2, 3), (2, 1), ((0, 0), (0, 0)), (1, 1), False),
    ((1, 2, 5, 6), (3, 3), (2, 2), ((1, 0), (1, 1)), (1, 1), False),
    ((1, 1, 7, 7), (2, 2), (2, 3), ((0, 0), (0, 0)), (1, 1), True),
    ((1, 1, 6, 6), (3, 3), (2, 2), ((1, 1), (0, 0)), (1, 1), True),
    ((1, 1, 4), (1,), (3,), ((0, 0),), (1,), True),
    ((1, 1, 7, 7), (2, 3), (1, 2), ((1, 1), (1, 2)), (2, 1), False),
    ((1, 1, 4, 4, 4), (2, 2, 2), (2, 1, 2), ((0, 0),) * 3, (1, 1, 1), False),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize(("shape", "kernel", "strides", "padding", "dilation", "ceil_mode"), POOLS)
def test_max_pool(
    check_operator, onnx_node, shape, kernel, strides, padding, dilation, ceil_mode, dtype
):
    x = draw(*shape, dtype=dtype)
    wanted = onnx_node(
        "MaxPool",
        x.astype(np.float32),
        kernel_shape=kernel,
        strides=strides,
        pads=flat(padding),
        dilations=dilation,
        ceil_mode=int(ceil_mode),
    )
    attrs = {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}
    check_operator(wanted.astype(dtype), "nn.max_pool", x, ceil_mode=ceil_mode, **attrs)


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "kernel", "strides", "padding", "dilation", "ceil_mode"), POOLS)
def test_avg_pool(
    check_operator,
    onnx_node,
    shape,
    kernel,
    strides,
    padding,
    dilation,
    ceil_mode,
    dtype,
    count_include_pad,
):
    x = draw(*shape, dtype=dtype)
    wanted = onnx_node(
        "AveragePool",
        x.astype(np.float32),
        kernel_shape=kernel,
        strides=strides,
        pads=flat(padding),
        dilations=dilation,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )
    attrs = {"kernel": kernel, "strides": strides, "padding": padding, "dilation": dilation}
    attrs |= {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    check_operator(wanted.astype(dtype), "nn.avg_pool", x, **attrs)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_lrn(check_operator, onnx_node, size):
    x = draw(4, 4, 2, 3)  # the oracle takes the batch for the channels
    attrs = {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 1.5}
    check_operator(onnx_node("LRN", x, **attrs), "nn.lrn", x, **attrs)


AXES = [(), (0,), (2,), (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_reduce(check_operator, name, axes, keepdims, dtype):
    x = draw(2, 3, 2, dtype=dtype)
    if dtype == "int8":
        x -= 3
    function = getattr(np, name)
    if name == "mean" and dtype not in ("float32", "float16"):
        wanted = np.trunc(np.mean(x.astype(np.float64), axes, keepdims=keepdims)).astype(dtype)
    else:
        wide = np.float32 if dtype == "float16" else dtype
        kind = {"dtype": wide} if name in ("sum", "prod", "mean") else {}
        wanted = function(x.astype(wide), axis=axes, keepdims=keepdims, **kind).astype(dtype)
    check_operator(np.asarray(wanted), name, x, axes=axes, keepdims=keepdims)


def test_reduce_bools(check_operator):
    x = np.array([[True, False], [True, True]])
    check_operator(np.array([False, True]), "all", x, axes=(1,))
    check_operator(np.array([[True, True]]), "any", x, axes=(0,), keepdims=True)
    check_operator(np.array([True, True]), "max", x, axes=(1,))
    check_operator(np.array([False, True]), "min", x, axes=(1,))


def test_reduce_nothing(check_operator):
    x = np.zeros((2, 0), np.float32)
    check_operator(np.full(2, -np.inf, np.float32), "max", x, axes=(1,))
    check_operator(np.full(2, np.inf, np.float32), "min", x, axes=(1,))
    check_operator(np.zeros(2, np.float32), "sum", x, axes=(1,))
    check_operator(np.ones(2, np.float32), "prod", x, axes=(1,))
    check_operator(np.full(2, np.nan, np.float32), "mean", x, axes=(1,))
    i = np.zeros((2, 0), np.int32)
    check_operator(np.full(2, np.iinfo(np.int32).min, np.int32), "max", i, axes=(1,))
    check_operator(np.zeros(2, np.int32), "mean", i, axes=(1,))


def test_reduce_propagates_nan(check_operator):
    x = np.array([[1, np.nan], [3, 2]], np.float32)
    check_operator(np.array([np.nan, 3], np.float32), "max", x, axes=(1,))
    check_operator(np.array([np.nan, 2], np.float32), "min", x, axes=(1,))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("name", "op_type"), [("argmax", "ArgMax"), ("argmin", "ArgMin")])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_arg_reduce(check_operator, onnx_node, name, op_type, axis, keepdims, last, dtype):
    x = RNG.integers(0, 3, (3, 4)).astype(dtype)
    wanted = onnx_node(op_type, x, axis=axis, keepdims=int(keepdims), select_last_index=int(last))
    check_operator(wanted, name, x, axis=axis, keepdims=keepdims, last=last)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("name", "op_type"), [("nn.softmax", "Softmax"), ("nn.log_softmax", "LogSoftmax")]
)
def test_softmax(check_operator, onnx_node, name, op_type, axis, dtype):
    x = (draw(2, 3, 4) * 10).astype(dtype)
    wanted = onnx_node(op_type, x.astype(np.float64), axis=axis).astype(dtype)
    check_operator(wanted, name, x, axis=axis)


def test_softmax_does_not_overflow(check_operator):
    x = np.array([[1000, 1000, -1000]], np.float32)
    check_operator(np.array([[0.5, 0.5, 0]], np.float32), "nn.softmax", x, axis=1)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm(check_operator, onnx_node, axis, dtype, with_bias):
    x = draw(2, 3, 4, dtype=dtype)
    scale = draw(*x.shape[axis:], dtype=dtype)
    bias = [draw(4, dtype=dtype)] if with_bias else []
    wide = [t.astype(np.float32) for t in (x, scale, *bias)]
    wanted = onnx_node("LayerNormalization", *wide, axis=axis, epsilon=0.01)
    check_operator(wanted.astype(dtype), "nn.layer_norm", x, scale, *bias, axis=axis, epsilon=0.01)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rms_norm(check_operator, dtype):
    x, scale = draw(2, 3, 4, dtype=dtype), draw(4, dtype=dtype)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 0.01) * scale
    check_operator(wanted.astype(dtype), "nn.rms_norm", x, scale, axis=2, epsilon=0.01)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2), (1, 3, 2, 2)])
def test_batch_norm(check_operator, onnx_node, shape):
    x = draw(*shape)
    vectors = [draw(3), draw(3), draw(3), np.abs(draw(3))]
    wanted = onnx_node("BatchNormalization", x, *vectors, epsilon=0.01)
    check_operator(wanted, "nn.batch_norm", x, *vectors, epsilon=0.01)


def test_instance_norm(check_operator, onnx_node):
    x, scale, bias = draw(2, 3, 2, 4), draw(3), draw(3)
    wanted = onnx_node("InstanceNormalization", x, scale, bias, epsilon=0.01)
    check_operator(wanted, "nn.instance_norm", x, scale, bias, epsilon=0.01)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(check_operator, groups):
    x, scale, bias = draw(2, 4, 3), draw(4), draw(4)
    rows = x.reshape(2, groups, -1)
    centred = rows - rows.mean(2, keepdims=True)
    inner = (centred / np.sqrt(rows.var(2, keepdims=True) + 0.01)).reshape(x.shape)
    wanted = inner * scale[:, None] + bias[:, None]
    check_operator(wanted, "nn.group_norm", x, scale, bias, groups=groups, epsilon=0.01)


@pytest.mark.parametrize("p", [1, 2])
def test_l2_normalize(check_operator, p):
    x = draw(3, 4)
    x[1] = 0
    length = np.abs(x).sum(1, keepdims=True) if p == 1 else np.linalg.norm(x, axis=1)[:, None]
    wanted = x / np.where(length == 0, 1, length)
    check_operator(wanted.astype(np.float32), "nn.l2_normalize", x, axis=1, p=p)


HALF_CASES = [
    ("nn.lrn", [(2, 3, 2)], {"size": 3}),
    ("nn.batch_norm", [(2, 3, 2), (3,), (3,), (3,), (3,)], {}),
    ("nn.instance_norm", [(2, 3, 4), (3,), (3,)], {}),
    ("nn.group_norm", [(2, 4, 3), (4,), (4,)], {"groups": 2}),
    ("nn.l2_normalize", [(3, 4)], {"axis": 1}),
    ("nn.rms_norm", [(3, 4), (4,)], {"axis": 1}),
    ("nn.softmax", [(3, 4)], {"axis": 1}),
    ("nn.prelu", [(3, 4), (4,)], {}),
    ("nn.gelu", [(3, 4)], {}),
    ("matmul", [(3, 4), (4, 2)], {}),
    ("sum", [(3, 4)], {"axes": (0,)}),
    ("mean", [(3, 4)], {"axes": (0,)}),
    ("cumsum", [(3, 4)], {"axis": 0}),
]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("name", "shapes", "attrs"), HALF_CASES, ids=[c[0] for c in HALF_CASES])
def test_half_precision_is_computed_in_float32(run_operator, name, shapes, attrs, dtype):
    halves = [RNG.uniform(0.1, 1, shape).astype(dtype) for shape in shapes]
    (found,) = run_operator(name, *halves, **attrs)
    (wide,) = run_operator(name, *(x.astype(np.float32) for x in halves), **attrs)
    np.testing.assert_array_equal(found, wide.astype(dtype))


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(run_operator, seed):
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    kernel = [int(k) for k in rng.integers(1, 4, rank)]
    attrs = {
        "strides": tuple(int(s) for s in rng.integers(1, 3, rank)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (rank, 2))),
        "dilation": tuple(int(d) for d in rng.integers(1, 3, rank)),
        "groups": groups,
    }
    x = rng.uniform(-1, 1, (1, 2 * groups, *rng.integers(5, 7, rank)))
    w = rng.uniform(-1, 1, (3 * groups, 2, *kernel))
    (found,) = run_operator("nn.conv", x, w, **attrs)
    np.testing.assert_allclose(found, convolve(x, w, attrs), rtol=1e-10, atol=1e-10)
    back = rng.uniform(-1, 1, (2 * groups, 3, *kernel))
    (found,) = run_operator("nn.conv_transpose", x, back, **attrs)
    wanted = scatter(x, back, attrs, (0,) * rank)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
