# SPDX-License-Identifier: Apache-2.0
"""conv3d as conv2d: the taps along the depth become input channels."""

from __future__ import annotations

from intarsia_ir.graph.expr import Call, Expr, Function, call, tensor_type
from intarsia_ir.graph.guards import require_at_most
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.shape import Concatenate, Transpose
from intarsia_ir.ops.slicing import Pad, StridedSlice
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from .relayout import moved, reshaped

_DEPTH_FIRST = (0, 2, 1, 3, 4)
"""Swaps channels and depth."""

_MOST_TAPS = 32
"""Taps of the depth up to which each becomes a slice of the graph and a copy of the data."""


def lower_conv3d(function: Function) -> Function:
    """Return an equivalent function; three-dimensional convolutions of float32 are changed."""
    return rewrite_function(function, _flattened)


def _flattened(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or node.op is not Conv or not isinstance(node.attrs, Conv.Attrs):
        return None
    data, weight, *bias = node.args
    kind, attrs = tensor_type(data), node.attrs
    if kind.rank != 5 or kind.dtype is not DType.FLOAT32 or not tensor_type(weight).is_static:
        return None
    batch, _, depth, *_ = extents(tensor_type(node).shape)
    outputs, inner, taps, *kernel = tensor_type(weight).static_shape
    if not isinstance(kind.shape[1], int) or 0 in kind.shape:
        return None
    if not tensor_type(weight).elements or taps > _MOST_TAPS:
        return None
    # The window fits, as the convolution's type says: of which slices are as long as the result.
    require_at_most(0, depth, f"{node.op.name}: the window must fit")
    stacked = _depth_as_channels(data, attrs, taps, depth)
    flat = reshaped(moved(weight, _DEPTH_FIRST), (outputs, taps * inner, *kernel))
    flat_attrs = Conv.Attrs(
        strides=attrs.strides[1:],
        padding=attrs.padding[1:],
        dilation=attrs.dilation[1:],
        groups=attrs.groups,
    )
    result = call(Conv, stacked, flat, *bias, attrs=flat_attrs, span=node.span)
    _, _, *sides = tensor_type(result).shape
    return moved(reshaped(result, (batch, depth, outputs, *sides)), _DEPTH_FIRST)


def _depth_as_channels(data: Expr, attrs: Conv.Attrs, taps: int, depth: int) -> Expr:
    """Return an image for each result along the depth: what each tap reads, as channels.

    In each group of channels, those that one tap reads lie behind those of the tap before.
    """
    (low, high), step, apart = attrs.padding[0], attrs.strides[0], attrs.dilation[0]
    if low or high:
        widths = ((0, 0), (0, 0), (low, high), (0, 0), (0, 0))
        data = call(Pad, data, attrs=Pad.Attrs(widths=widths))
    batch, channels, _, *sides = extents(tensor_type(data).shape)
    parts: list[Expr] = []
    for tap in range(taps):
        first = tap * apart
        cut = StridedSlice.Attrs(
            begin=(0, 0, first, 0, 0),
            end=(batch, channels, first + (depth - 1) * step + 1, *sides),
            strides=(1, 1, step, 1, 1),
        )
        parts.append(call(StridedSlice, data, attrs=cut))
    stacked = parts[0]
    if taps > 1:
        stacked = call(Concatenate, *parts, attrs=Concatenate.Attrs(axis=1))
    groups = attrs.groups
    if groups == 1:
        frames = call(Transpose, stacked, attrs=Transpose.Attrs(axes=_DEPTH_FIRST))
    else:
        apart_shape = (batch, taps, groups, channels // groups, depth, *sides)
        frames = moved(reshaped(stacked, apart_shape), (0, 4, 2, 1, 3, 5, 6))
    return reshaped(frames, (batch * depth, taps * channels, *sides))
