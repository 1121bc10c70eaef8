# SPDX-License-Identifier: Apache-2.0
"""Operators that move or make elements, against ONNX's reference and NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from intarsia_runtime.dtype import DType

RNG = np.random.default_rng(13)


def draw(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2, 3, 4), (6, 4)),
        ((2, 3, 4), (2, 12)),
        ((6, 4), (2, 3, 4)),
        ((2, 6), (3, 4)),
        ((4, 3), (2, 6)),
        ((1, 4), (4,)),
        ((4,), (1, 4, 1, 1)),
        ((1, 1), ()),
        ((), (1, 1)),
        ((2, 1, 3), (2, 3, 1)),
        ((0, 3), (3, 0)),
        ((2, 3, 4), (4, -1)),
        ((2, 3, 4), (-1,)),
        ((), (-1,)),
    ],
)
def test_reshape(check_operator, old, new):
    x = draw(*old)
    check_operator(x.reshape(new), "reshape", x, shape=new)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_transpose(check_operator, axes):
    x = draw(2, 3, 4)
    check_operator(x.transpose(axes), "transpose", x, axes=axes)


def test_transpose_of_a_scalar(check_operator):
    check_operator(np.float32(3), "transpose", np.array(3, np.float32), axes=())


@pytest.mark.parametrize("axis", [0, 1])
def test_concatenate(check_operator, axis):
    shapes = ([(2, 3), (4, 3), (0, 3), (1, 3)], [(2, 1), (2, 3), (2, 0), (2, 2)])[axis]
    parts = [draw(*shape) for shape in shapes]
    check_operator(np.concatenate(parts, axis), "concatenate", *parts, axis=axis)
    check_operator(parts[0], "concatenate", parts[0], axis=axis)
    empty = parts[2]
    check_operator(empty, "concatenate", empty, empty, axis=axis)


@pytest.mark.parametrize(("axis", "sections"), [(0, (1, 3)), (1, (2, 0, 1)), (1, (3,))])
def test_split(check_operator, axis, sections):
    x = draw(4, 3)
    wanted = np.split(x, np.cumsum(sections)[:-1], axis)
    check_operator(wanted, "split", x, axis=axis, sections=sections)


@pytest.mark.parametrize(
    ("begin", "end", "strides", "wanted"),
    [
        ((0, 0), (4, 5), (1, 1), np.s_[:, :]),
        ((1, 2), (3, 5), (1, 2), np.s_[1:3, 2:5:2]),
        ((3, 4), (-1, 0), (-1, -2), np.s_[::-1, 4:0:-2]),
        ((2, 0), (2, 5), (1, 1), np.s_[2:2, :]),
        ((4, 5), (4, 5), (1, 1), np.s_[4:, 5:]),
    ],
)
def test_strided_slice(check_operator, begin, end, strides, wanted):
    x = draw(4, 5)
    check_operator(x[wanted], "strided_slice", x, begin=begin, end=end, strides=strides)


@pytest.mark.parametrize(
    ("old", "new"), [((3,), (2, 3)), ((2, 1), (2, 4)), ((), (2, 2)), ((1, 3), (1, 3))]
)
def test_broadcast_to(check_operator, old, new):
    x = draw(*old)
    check_operator(np.broadcast_to(x, new), "broadcast_to", x, shape=new)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "widths", [((0, 0), (0, 0)), ((1, 2), (0, 1)), ((-1, 1), (2, -2)), ((-1, -1), (-2, 0))]
)
def test_pad(check_operator, onnx_node, mode, widths):
    x = draw(4, 5)
    pads = np.array([low for low, _ in widths] + [high for _, high in widths])
    cut = x[
        tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths, strict=True))
    ]
    wanted = onnx_node("Pad", cut, np.maximum(pads, 0), np.float32(1.5), mode=mode)
    check_operator(wanted, "nn.pad", x, widths=widths, mode=mode, value=1.5)


@pytest.mark.parametrize("dtype", ["int8", "bool", "float16"])
def test_pad_takes_the_element_type(check_operator, dtype):
    x = np.ones((2,), dtype)
    check_operator(np.array([0, 1, 1], dtype), "nn.pad", x, widths=((1, 0),))


@pytest.mark.parametrize("axes", [(), (0,), (0, 2)])
def test_flip(check_operator, axes):
    x = draw(2, 3, 4)
    check_operator(np.flip(x, axes), "flip", x, axes=axes)


def test_copy(check_operator):
    x = draw(2, 3)
    check_operator(x, "copy", x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("axis", "indices"), [(0, [0, -1, 2]), (1, [[1, 0], [-4, 3]]), (1, 2), (0, [])]
)
def test_take(check_operator, onnx_node, axis, indices, dtype):
    x, picked = draw(3, 4), np.array(indices, dtype)
    check_operator(onnx_node("Gather", x, picked, axis=axis), "take", x, picked, axis=axis)


def test_take_clamps(check_operator):
    x = np.array([10, 20, 30], np.int32)
    picked = np.array([5, -9, 3, -4])
    check_operator(np.array([30, 10, 30, 10], np.int32), "take", x, picked, axis=0)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(check_operator, axis):
    x, picked = draw(3, 3), np.array([[0, -1], [2, 1]])
    near = x[:, :2] if axis == 0 else x[:2]  # fewer indices than data outside the axis
    wanted = np.take_along_axis(near, picked % 3, axis=axis)
    check_operator(wanted, "gather_elements", x, picked, axis=axis)
    clamped = np.take_along_axis(near, np.array([[2, 0], [2, 1]]), axis=axis)
    out = np.array([[7, -9], [2, 1]], np.int32)
    check_operator(clamped, "gather_elements", x, out, axis=axis)


@pytest.mark.parametrize(
    ("data", "indices", "batch_dims"),
    [
        ((2, 3, 4), [[0, 1], [1, -1]], 0),
        ((2, 3, 4), [[0, 1, 3]], 0),
        ((2, 3, 4), [[1], [0]], 0),
        ((2, 3, 4), [[1], [2]], 1),
        ((2, 3, 4), [[[1, 0], [2, 3]], [[0, 0], [1, 1]]], 1),
        ((2, 2, 4), [[[1], [2]], [[0], [3]]], 2),
    ],
)
def test_gather_nd(check_operator, onnx_node, data, indices, batch_dims):
    x, picked = draw(*data), np.array(indices)
    wanted = onnx_node("GatherND", x, picked, batch_dims=batch_dims)
    check_operator(wanted, "gather_nd", x, picked, batch_dims=batch_dims)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_one_hot(check_operator, onnx_node, axis, dtype):
    x = np.array([[0, 2, 3], [1, 0, 7]], dtype)
    wanted = onnx_node("OneHot", x, np.array(4), np.array([1, 5], np.int16), axis=axis)
    attrs = {"depth": 4, "axis": axis, "on_value": 5.0, "off_value": 1.0, "dtype": DType.INT16}
    check_operator(wanted, "one_hot", x, **attrs)


def test_one_hot_counts_back(check_operator):
    x = np.array([-1, -3, -4])
    wanted = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]], np.float32)
    check_operator(wanted, "one_hot", x, depth=3, axis=1)


def test_full(check_operator):
    check_operator(np.full((2, 3), 7, np.int8), "full", shape=(2, 3), value=7, dtype=DType.INT8)
    scalar = np.full((), 0.5, ml_dtypes.bfloat16)
    check_operator(scalar, "full", shape=(), value=0.5, dtype=DType.BFLOAT16)
    check_operator(np.ones(2, bool), "full", shape=(2,), value=True, dtype=DType.BOOL)
    big = 2**62 + 1
    check_operator(np.full(1, big), "full", shape=(1,), value=big, dtype=DType.INT64)


@pytest.mark.parametrize(
    ("start", "stop", "step", "dtype"),
    [(0, 5, 1, "int64"), (5, 0, -2, "int32"), (0.5, 2.0, 0.25, "float32"), (3, 1, 1, "int64")],
)
def test_arange(check_operator, start, stop, step, dtype):
    wanted = np.arange(start, stop, step, dtype)
    attrs = {"start": start, "stop": stop, "step": step, "dtype": DType(dtype)}
    check_operator(wanted, "arange", **attrs)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("diagonal", [-5, -1, 0, 2])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_triangular(check_operator, upper, diagonal, dtype):
    x = np.ones((2, 3, 4), dtype)
    wanted = (np.triu if upper else np.tril)(x, diagonal)
    check_operator(wanted, "triangular", x, upper=upper, diagonal=diagonal)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_cumsum(check_operator, onnx_node, axis, exclusive, reverse, dtype):
    x = RNG.integers(-50, 50, (3, 4)).astype(dtype)
    wide = x.astype(np.int64)
    attrs = {"exclusive": int(exclusive), "reverse": int(reverse)}
    wanted = onnx_node("CumSum", wide, np.array(axis), **attrs).astype(dtype)
    check_operator(wanted, "cumsum", x, axis=axis, exclusive=exclusive, reverse=reverse)


COORDINATE_MODES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
]


@pytest.mark.parametrize("coordinate_mode", COORDINATE_MODES)
@pytest.mark.parametrize("sizes", [(1, 1, 8, 10), (1, 1, 2, 3), (1, 1, 7, 5), (1, 1, 4, 9)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_by_sizes(check_operator, onnx_node, mode, sizes, coordinate_mode):
    x = draw(1, 1, 4, 5)
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinate_mode}
    wanted = onnx_node("Resize", x, None, None, np.array(sizes), **attrs).astype(np.float32)
    attrs = {"mode": mode, "coordinate_mode": coordinate_mode}
    check_operator(wanted, "nn.resize", x, sizes=sizes, **attrs)


@pytest.mark.parametrize("coordinate_mode", COORDINATE_MODES)
@pytest.mark.parametrize(
    "nearest_mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
)
@pytest.mark.parametrize("sizes", [(1, 1, 8, 10), (1, 1, 2, 3), (1, 1, 7, 5), (1, 2, 4, 15)])
def test_resize_nearest(check_operator, onnx_node, nearest_mode, sizes, coordinate_mode):
    x = draw(1, 1, 4, 5)
    attrs = {"coordinate_transformation_mode": coordinate_mode, "nearest_mode": nearest_mode}
    wanted = onnx_node("Resize", x, None, None, np.array(sizes), mode="nearest", **attrs)
    attrs = {"coordinate_mode": coordinate_mode, "nearest_mode": nearest_mode}
    check_operator(wanted.astype(np.float32), "nn.resize", x, sizes=sizes, **attrs)


@pytest.mark.parametrize("coordinate_mode", COORDINATE_MODES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_by_scales(check_operator, onnx_node, mode, coordinate_mode):
    x = draw(1, 1, 4, 5)
    scales = (1.0, 1.0, 0.6, 1.7)
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinate_mode}
    wanted = onnx_node("Resize", x, None, np.array(scales, np.float64), **attrs)
    attrs = {"mode": mode, "coordinate_mode": coordinate_mode, "scales": scales}
    check_operator(wanted.astype(np.float32), "nn.resize", x, sizes=wanted.shape, **attrs)


def test_resize_excludes_what_is_outside(check_operator, onnx_node):
    x = draw(1, 1, 4, 4)
    sizes = (1, 1, 8, 3)
    attrs = {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}
    wanted = onnx_node("Resize", x, None, None, np.array(sizes), **attrs).astype(np.float32)
    attrs = {"mode": "cubic", "cubic_a": -0.5, "exclude_outside": True}
    check_operator(wanted, "nn.resize", x, sizes=sizes, **attrs)


def test_resize_of_other_types(run_operator):
    x = np.arange(4, dtype=np.int8).reshape(2, 2)
    (found,) = run_operator("nn.resize", x, sizes=(4, 2))
    assert found[:, 0].tolist() == [0, 0, 2, 2]
    run_operator("nn.resize", draw(2, 2).astype(np.float16), sizes=(3, 4), mode="linear")
    run_operator(
        "nn.resize", draw(2, 1), sizes=(1, 1), mode="cubic", coordinate_mode="pytorch_half_pixel"
    )


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(check_operator, onnx_node, mode):
    x = draw(2, 8, 2, 3)
    wanted = onnx_node("DepthToSpace", x, blocksize=2, mode=mode)
    check_operator(wanted, "nn.depth_to_space", x, block=2, mode=mode)


def test_space_to_depth(check_operator, onnx_node):
    x = draw(2, 3, 4, 6)
    check_operator(onnx_node("SpaceToDepth", x, blocksize=2), "nn.space_to_depth", x, block=2)
