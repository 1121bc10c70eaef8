# SPDX-License-Identifier: Apache-2.0
"""Reshapes and transposes of values, folded for constants; packing is composed of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Constant, Expr, call, constant, tensor_type
from intarsia_ir.graph.op import OpAttrs
from intarsia_ir.graph.types import Size
from intarsia_ir.ops.indexing import Take
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.resize import Resize
from intarsia_ir.ops.shape import Concatenate, Reshape, Split, Transpose
from intarsia_ir.ops.slicing import Pad, StridedSlice
from intarsia_ir.tir.tensor import extents
from intarsia_ir.writing.deferred import DeferredArray

from .bf16x2 import bf16x2_conv_deferred, bf16x2_dense_deferred
from .packing import conv_deferred, dense_deferred, depthwise_deferred, winograd_deferred

TO_LAST = (0, 2, 3, 1)
"""Channels first to channels last, as the axes of a transpose."""

TO_FIRST = (0, 3, 1, 2)
"""Channels last to channels first."""

LINES_LAST = (0, 2, 1)
"""The same of lines, which have one dimension besides batch and channels, both ways."""


def as_image(value: Expr) -> Expr:
    """Return a value of rank 4 itself, and lines ``[N, C, W]`` as images ``[N, C, 1, W]``."""
    shape = tensor_type(value).shape
    return value if len(shape) == 4 else reshaped(value, (*shape[:2], 1, *shape[2:]))


def reshaped(value: Expr, shape: tuple[Size, ...]) -> Expr:
    """Return the elements of a value in another shape."""
    if isinstance(value, Constant):
        numbers = value.type.with_shape(shape).static_shape
        return constant(value.data.reshape(numbers), name=value.name, span=value.span)
    return call(Reshape, value, attrs=Reshape.Attrs(shape=extents(shape)))


def sliced(value: Expr, axis: int, ends: tuple[Size, Size], stride: int = 1) -> Expr:
    """Return every ``stride``-th element along an axis, from one place on and before another.

    ``value`` itself if these are all.
    """
    shape = tensor_type(value).shape
    if ends == (0, shape[axis]) and stride == 1:
        return value
    begin: list[Size] = [0] * len(shape)
    end: list[Size] = [*shape]
    begin[axis], end[axis] = ends
    strides = tuple(stride if d == axis else 1 for d in range(len(shape)))
    attrs = StridedSlice.Attrs(begin=extents(begin), end=extents(end), strides=strides)
    return call(StridedSlice, value, attrs=attrs, span=value.span)


def moved(value: Expr, axes: tuple[int, ...]) -> Expr:
    """Return ``value`` transposed; transposes of constants and of transposes are carried out."""
    if axes == tuple(range(len(axes))):
        return value
    if isinstance(value, Constant):
        transposed = np.ascontiguousarray(value.data.transpose(axes))
        return constant(transposed, name=value.name, span=value.span)
    if isinstance(value, Call) and value.op is Transpose:
        assert isinstance(value.attrs, Transpose.Attrs)  # as of every transpose
        inner = value.attrs.axes
        return moved(value.args[0], tuple(inner[axis] for axis in axes))
    return call(Transpose, value, attrs=Transpose.Attrs(axes=axes), span=value.span)


def packed_conv(weight: Expr, groups: int, width: int) -> Expr:
    """Return what ``pack_conv`` makes of weights that are known at run time only.

    Blocks of columns are turned as matrices, for which there are fast loops; then channels and taps
    change places.
    """
    outputs, inner, height, breadth = tensor_type(weight).static_shape
    own, taps = outputs // groups, height * breadth
    blocks = -(-own // width)
    matrix = reshaped(weight, (groups, own, inner * taps))
    if own % width:
        widths = ((0, 0), (0, blocks * width - own), (0, 0))
        matrix = call(Pad, matrix, attrs=Pad.Attrs(widths=widths))
    columns = moved(reshaped(matrix, (groups * blocks, width, inner * taps)), (0, 2, 1))
    if taps == 1:
        return columns
    apart = reshaped(columns, (groups * blocks, inner, taps, width))
    return reshaped(moved(apart, (0, 2, 1, 3)), (groups * blocks, taps * inner, width))


def packed_depthwise(weight: Expr) -> Expr:
    """Return what ``pack_depthwise`` makes of weights that are known at run time only."""
    channels, _, height, breadth = tensor_type(weight).static_shape
    matrix = reshaped(weight, (channels, height * breadth))
    return reshaped(moved(matrix, (1, 0)), (height, breadth, channels))


def nhwc_axis(attrs: OpAttrs) -> OpAttrs:
    """Attributes with one axis, channels last."""
    assert isinstance(attrs, Concatenate.Attrs | Split.Attrs | Take.Attrs)  # what it is called for
    return replace(attrs, axis=TO_LAST.index(attrs.axis))


def permuted(node: Call) -> OpAttrs | None:
    """Return the attributes of an operator of one image, channels last; ``None`` if unknown."""
    attrs = node.attrs
    match attrs:
        case Pad.Attrs():
            widths = tuple(attrs.widths[axis] for axis in TO_LAST)
            return replace(attrs, widths=widths)
        case StridedSlice.Attrs():
            begin, end, strides = (
                tuple(values[axis] for axis in TO_LAST)
                for values in (attrs.begin, attrs.end, attrs.strides)
            )
            return replace(attrs, begin=begin, end=end, strides=strides)
        case Split.Attrs():
            return nhwc_axis(attrs)
        case Resize.Attrs():
            scales = attrs.scales and tuple(attrs.scales[axis] for axis in TO_LAST)
            return replace(attrs, sizes=tuple(attrs.sizes[a] for a in TO_LAST), scales=scales)
        case _:
            return None


def packed_deferred(weight: np.ndarray, how: tuple[object, ...]) -> DeferredArray:
    """Return a weight as the loops want it; it is packed when it is wanted."""
    match how:
        case ("winograd", int(width)):
            return winograd_deferred(weight, width)
        case ("conv", int(groups), int(width)):
            return conv_deferred(weight, groups, width)
        case ("pair_conv", int(groups), int(width), bool(paired)):
            return bf16x2_conv_deferred(weight, groups, width, is_paired=paired)
        case ("pair_dense", bool(flipped), int(width), bool(paired)):
            matrix = weight.T if flipped else weight
            return bf16x2_dense_deferred(matrix, width, is_paired=paired)
        case ("dense", bool(flipped), int(width)):
            return dense_deferred(weight.T if flipped else weight, width)
        case _:
            return depthwise_deferred(weight)


def of_height_one(node: Call, args: Sequence[Expr]) -> Call | None:
    """Return a one-dimensional convolution as one of images of height 1, if it is.

    Args:
        node: The convolution.
        args: Its operands: data, the weight, which has three dimensions as well, and others.
    """
    data, *others = args
    place = next(n for n, arg in enumerate(others) if tensor_type(arg).rank == 3)
    plain = node.attrs
    if not isinstance(plain, Conv.Attrs):
        return None
    outputs, inner, taps = tensor_type(others[place]).static_shape
    others[place] = reshaped(others[place], (outputs, inner, 1, taps))
    attrs = Conv.Attrs(
        strides=(1, *plain.strides),
        padding=((0, 0), *plain.padding),
        dilation=(1, *plain.dilation),
        groups=plain.groups,
    )
    return call(node.op, as_image(data), *others, attrs=attrs, span=node.span)
