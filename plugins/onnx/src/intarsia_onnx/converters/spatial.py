# SPDX-License-Identifier: Apache-2.0
"""Operators on spatial dimensions: Resize, Upsample, GridSample, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import is_collecting
from intarsia_ir.ops import compare, resample, sampling, unary
from intarsia_ir.ops import image_regions as regions
from intarsia_ir.ops import resize as resizing
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..builder import STATIC_HINT, dtype_of, sizes_of
from ..context import NodeContext
from ..resizing import LARGEST, by_policy, is_crop, needs_matrices, resizings, scaled_size
from .open_resize import BY_SCALE, OpenResize, is_open_resize, open_axes

_MODES = ("nearest", "linear", "cubic")
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)
_FLOORED = ("asymmetric", "floor")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def upsample(node: NodeContext) -> Expr:
    """Convert Upsample and the Resize of opset 10, which sample at ``x / scale``.

    Of elements it takes the one before, but the one behind where a dimension shrinks: ONNX's tests
    of opset 10 and ONNX Runtime do.
    """
    sizes, mode = node.static_shape(0), _mode(node)
    by_attribute = node.has("scales")
    if not by_attribute and not node.is_fixed(1) and is_collecting():
        return _upsampled(node, node.input(1))
    scales = node.numbers("scales") if by_attribute else _scales(node, 1)
    _check_scales(node, sizes, scales)
    shrinks = mode == "nearest" and any(scale < 1 for scale in scales)
    is_open = is_collecting() and any(isinstance(size, Dim) for size in sizes)
    if shrinks or (is_open and not (mode == "nearest" and _are_whole(scales))):
        return _upsampled(node, node.array(np.array(scales, np.float32)))
    return _resized(node, _scaled(node, sizes, scales), scales, *_FLOORED)


def _upsampled(node: NodeContext, scales: Expr) -> Expr:
    """Convert an Upsample as a Resize of any sizes by any scales."""
    axes = tuple(range(len(node.static_shape(0))))
    resized = node.as_standard("Resize", (*node.args[:1], None, scales))
    return _open_resized(resized, axes, "asymmetric", BY_SCALE)


def resize(node: NodeContext) -> Expr:
    """Convert Resize by scales or sizes."""
    if node.opset < 11:
        return upsample(node)
    coordinates = node.string("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES and not is_crop(node):
        raise node.unsupported(f"Resize with coordinate_transformation_mode='{coordinates}'")
    nearest = node.string("nearest_mode", "round_prefer_floor")
    if nearest not in _NEAREST:
        raise node.model_error(f"nearest_mode='{nearest}' is not defined")
    _mode(node)
    sizes = node.static_shape(0)
    rank = len(sizes)
    axes = tuple(range(rank))
    if node.has("axes"):
        axes = tuple(node.normal_axis(axis, rank) for axis in node.integers("axes"))
        node.normal_axes(axes, rank)
    if is_collecting() and is_open_resize(node) and not _repeats_elements(node, axes):
        return _open_resized(node, axes, coordinates, nearest)
    if needs_matrices(node):
        return _resized_by_matrices(node)
    given = node.optional(3)
    if given is None:
        part = _scales(node, 2)
        _check_count(node, part, axes)
        scales = _spread(part, axes, [1.0] * rank)
        return _resized(node, _scaled(node, sizes, scales), scales, coordinates, nearest)
    wanted = node.required_ints(3, "the sizes")
    _check_count(node, wanted, axes)
    if any(size < 1 for size in (*wanted, *(sizes[axis] for axis in axes))):
        raise node.model_error(f"sizes {wanted} for shape {sizes}")
    part, ratios = by_policy(node, tuple(sizes[axis] for axis in axes), wanted)
    new = tuple(int(size) for size in _spread(part, axes, [float(size) for size in sizes]))
    return _resized(node, new, _spread(ratios, axes, [1.0] * rank), coordinates, nearest)


def _open_resized(
    node: NodeContext,
    axes: tuple[int, ...],
    coordinates: str,
    nearest: str,
) -> Expr:
    """Convert a Resize whose sizes, scales or region only the run knows."""
    crop = coordinates == "tf_crop_and_resize"
    return OpenResize(node, _mode(node), coordinates, nearest).apply(
        open_axes(node, axes, crop=crop)
    )


def _repeats_elements(node: NodeContext, axes: tuple[int, ...]) -> bool:
    """Whether a *nearest* Resize of an open size repeats elements by known whole numbers."""
    if node.optional(3) is not None or not node.is_fixed(2) or needs_matrices(node):
        return False
    part = _scales(node, 2)
    coordinates = node.string("coordinate_transformation_mode", "half_pixel")
    nearest = node.string("nearest_mode", "round_prefer_floor")
    return (
        _are_whole(part) and len(part) == len(axes) and _repeats(_mode(node), coordinates, nearest)
    )


def _repeats(mode: str, coordinates: str, nearest: str) -> bool:
    """Whether a Resize by whole numbers repeats elements."""
    rounds = coordinates in ("half_pixel", "pytorch_half_pixel") and nearest.startswith("round")
    return mode == "nearest" and (rounds or (coordinates, nearest) == _FLOORED)


def _scales(node: NodeContext, index: int) -> tuple[float, ...]:
    value = node.required_value(index, "the scales")
    if value.dtype.kind != "f" or value.ndim != 1:
        raise node.model_error("the scales must be a vector of floats")
    return tuple(float(scale) for scale in value)


def _check_count(node: NodeContext, values: Sequence[float], axes: Sequence[int]) -> None:
    if len(values) != len(axes):
        raise node.model_error(f"{len(values)} scales or sizes for {len(axes)} axes")


def _spread(values: Sequence[float], axes: Sequence[int], start: list[float]) -> tuple[float, ...]:
    result = list(start)
    for value, axis in zip(values, axes, strict=True):
        result[axis] = value
    return tuple(result)


def _check_scales(node: NodeContext, sizes: Sequence[int], scales: Sequence[float]) -> None:
    if len(scales) != len(sizes) or any(not 0 < scale < LARGEST for scale in scales):
        raise node.model_error(f"scales {tuple(scales)} for shape {tuple(sizes)}")


def _scaled(node: NodeContext, sizes: Sequence[int], scales: Sequence[float]) -> tuple[int, ...]:
    _check_scales(node, sizes, scales)
    return tuple(_scaled_size(size, scale) for size, scale in zip(sizes, scales, strict=True))


def _scaled_size(size: int, scale: float) -> int:
    """Return a size by a scale, which is a whole number if the size is open."""
    return size * int(scale) if isinstance(size, Dim) else scaled_size(size, scale)


def _are_whole(scales: Sequence[float]) -> bool:
    return all(scale == int(scale) >= 1 for scale in scales)


def _mode(node: NodeContext) -> str:
    mode = node.string("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if mode not in _MODES:
        raise node.model_error(f"mode='{mode}' is not defined")
    return mode


def _repeated(
    node: NodeContext, scales: tuple[float, ...], mode: str, coordinates: str, nearest: str
) -> Expr:
    """Repeat the elements of a tensor of open sizes, which is *nearest* by whole numbers."""
    if not _are_whole(scales) or not _repeats(mode, coordinates, nearest):
        raise node.unsupported(f"a {mode} Resize of open sizes by {scales}", STATIC_HINT)
    x, sizes = node.input(0), node.static_shape(0)
    split: list[int] = []
    grown: list[int] = []
    for size, scale in zip(sizes, scales, strict=True):
        split += [size] if scale == 1 else [size, 1]
        grown += [size] if scale == 1 else [size, int(scale)]
    repeated = node.broadcast(node.reshape(x, split), grown)
    new = [size * int(scale) for size, scale in zip(sizes, scales, strict=True)]
    return node.reshape(repeated, extents(new))


def _resized(
    node: NodeContext,
    sizes: tuple[int, ...],
    scales: tuple[float, ...],
    coordinates: str,
    nearest: str,
) -> Expr:
    mode = _mode(node)
    if sizes == node.static_shape(0) and all(scale == 1.0 for scale in scales):
        return node.input(0)
    if any(isinstance(size, Dim) for size in (*sizes, *node.static_shape(0))):
        return _repeated(node, scales, mode, coordinates, nearest)
    if 0 in sizes:  # a scale leaves less than one element
        return node.full(sizes, 0, dtype_of(node.input(0)))
    attrs = resizing.Resize.Attrs(
        sizes=sizes,
        scales=scales,
        mode=mode,
        coordinate_mode=coordinates,
        nearest_mode=nearest,
        cubic_a=node.number("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.integer("exclude_outside", 0)),
    )
    x = node.input(0)
    dtype = dtype_of(x)
    if mode == "nearest" or dtype.is_float:
        return node.call(resizing.Resize, x, attrs=attrs)
    # Integers are interpolated in float, then rounded and saturated, as in ONNX's reference.
    wide = DType.FLOAT32 if dtype.bits <= 16 else DType.FLOAT64
    result = node.call(resizing.Resize, node.cast(x, wide), attrs=attrs)
    return node.cast(node.call(unary.Round, result), dtype)


def _resized_by_matrices(node: NodeContext) -> Expr:
    """Convert a Resize with an antialiasing filter, or of a known region."""
    shape, dtype = node.static_shape(0), dtype_of(node.input(0))
    roi, scales, sizes = (
        None if node.optional(n) is None else node.required_value(n, what)
        for n, what in enumerate(("the region", "the scales", "the sizes"), start=1)
    )
    x = node.input(0) if dtype.is_float else node.cast(node.input(0), DType.FLOAT32)
    outside = np.zeros([1] * len(shape), bool)
    for part in resizings(node, shape, roi, scales, sizes):
        starts, weights = _bands(part.matrix)
        attrs = resample.Resample.Attrs(axis=part.axis)
        x = node.call(resample.Resample, x, node.array(starts), node.array(weights), attrs=attrs)
        column = [-1 if axis == part.axis else 1 for axis in range(len(shape))]
        outside = outside | part.outside.reshape(column)
    if is_crop(node) and outside.any():
        beyond = node.scalar(node.number("extrapolation_value", 0.0), dtype_of(x))
        x = node.call(compare.Where, node.array(outside), beyond, x)
    return x if dtype.is_float else node.cast(node.call(unary.Round, x), dtype)


def _bands(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the elements of each row that are not 0 begin, and as many as the most are."""
    marks = matrix != 0
    first = marks.argmax(1)
    taps = int((matrix.shape[1] - marks[:, ::-1].argmax(1) - first).max(initial=1))
    starts = np.minimum(first, matrix.shape[1] - taps)
    weights = np.take_along_axis(matrix, starts[:, None] + np.arange(taps), 1)
    return starts, weights.astype(np.float32)


def depth_to_space(node: NodeContext) -> Expr:
    """Convert DepthToSpace."""
    mode = node.string("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise node.model_error(f"mode='{mode}' is not defined")
    attrs = resizing.DepthToSpace.Attrs(block=node.integer("blocksize"), mode=mode)
    return node.call(resizing.DepthToSpace, node.input(0), attrs=attrs)


def grid_sample(node: NodeContext) -> Expr:
    """Convert GridSample; before opset 20 modes had the names of images."""
    mode = node.string("mode", "linear")
    attrs = sampling.GridSample.Attrs(
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding=node.string("padding_mode", "zeros"),
        align_corners=bool(node.integer("align_corners", 0)),
    )
    return node.call(sampling.GridSample, node.input(0), node.input(1), attrs=attrs)


def roi_align(node: NodeContext) -> Expr:
    """Convert RoiAlign with a fixed number of samples in each cell."""
    samples = node.integer("sampling_ratio", 0)
    if samples < 1:
        raise node.unsupported("RoiAlign with as many samples as a region has pixels", STATIC_HINT)
    mode = node.string("mode", "avg")
    where = node.string("coordinate_transformation_mode", _roi_default(node))
    if mode not in ("avg", "max") or where not in ("half_pixel", "output_half_pixel"):
        raise node.model_error(f"mode='{mode}', coordinate_transformation_mode='{where}'")
    attrs = regions.RoiAlign.Attrs(
        size=(node.integer("output_height", 1), node.integer("output_width", 1)),
        samples=samples,
        scale=node.number("spatial_scale", 1.0),
        half_pixel=where == "half_pixel",
        largest=mode == "max",
    )
    return node.call(regions.RoiAlign, *node.variadic(), attrs=attrs)


def _roi_default(node: NodeContext) -> str:
    return "half_pixel" if node.opset >= 16 else "output_half_pixel"


def space_to_depth(node: NodeContext) -> Expr:
    """Convert SpaceToDepth; mode CRD puts the block's two dimensions behind the channels."""
    x, block = node.input(0), node.integer("blocksize")
    deep = node.call(resizing.SpaceToDepth, x, attrs=resizing.SpaceToDepth.Attrs(block=block))
    if node.string("mode", "DCR") != "CRD":
        return deep
    n, channels, *sides = sizes_of(deep)
    split = node.reshape(deep, (n, block * block, sizes_of(x)[1], *sides))
    return node.reshape(node.transpose(split, (0, 2, 1, 3, 4)), (n, channels, *sides))


CONVERTERS = MappingProxyType(
    {
        "DepthToSpace": depth_to_space,
        "GridSample": grid_sample,
        "Resize": resize,
        "RoiAlign": roi_align,
        "SpaceToDepth": space_to_depth,
        "Upsample": upsample,
    }
)
