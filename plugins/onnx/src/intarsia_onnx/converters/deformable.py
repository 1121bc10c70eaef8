# SPDX-License-Identifier: Apache-2.0
"""Convolution of samples at places that offsets move (Dai et al., 2017)."""

from __future__ import annotations

import itertools
import math
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.ops import binary, compare, indexing, nn, unary
from intarsia_runtime.dtype import DType

from ..builder import dtype_of
from ..context import NodeContext
from .window import read_window


def deform_conv(node: NodeContext) -> Expr:
    """Convert DeformConv: samples between neighbours, then a product with the weights."""
    shape, weight, moved = (node.static_shape(index) for index in range(3))
    window = read_window(node, weight[2:])
    groups, parts = node.integer("group", 1), node.integer("offset_group", 1)
    taps, rank, sizes = math.prod(window.kernel), len(window.kernel), moved[2:]
    if min(groups, parts) < 1 or shape[1] % parts or shape[1] != weight[1] * groups:
        raise node.model_error(f"{shape[1]} channels; group={groups}, offset_group={parts}")
    if moved[:2] != (shape[0], parts * taps * rank) or len(sizes) != rank:
        raise node.model_error(f"offsets {node.type_of(2)} for {parts} times {taps} taps")
    kind = DType.FLOAT64 if dtype_of(node.input(0)) is DType.FLOAT64 else DType.FLOAT32
    rows, points = shape[0] * parts, taps * math.prod(sizes)
    offsets = node.reshape(node.cast(node.input(2), kind), (rows, taps, rank, math.prod(sizes)))
    places: list[Expr] = []
    grid = np.indices(sizes).reshape(rank, -1)
    for axis, position in enumerate(np.indices(window.kernel).reshape(rank, -1)):
        start = grid[axis] * window.strides[axis] - window.padding[axis][0]
        steps = start + (position * window.dilation[axis])[:, None]
        fixed = node.cast(node.array(steps.astype(np.float32)), kind)
        place = node.call(binary.Add, node.item(offsets, 2, axis), fixed)
        places.append(node.reshape(place, (rows, 1, points)))
    x = node.cast(node.input(0), kind)
    flat = node.reshape(x, (rows, shape[1] // parts, math.prod(shape[2:])))
    samples = _between(node, flat, places, shape[2:])
    if node.optional(4) is not None:
        mask = node.reshape(node.cast(node.input(4), kind), (rows, 1, points))
        samples = node.call(binary.Multiply, samples, mask)
    columns = node.reshape(samples, (shape[0], groups, weight[1] * taps, math.prod(sizes)))
    factors = node.reshape(
        node.cast(node.input(1), kind), (groups, weight[0] // groups, weight[1] * taps)
    )
    result = node.call(nn.Matmul, factors, columns)
    result = node.reshape(result, (shape[0], weight[0], *sizes))
    if node.optional(3) is not None:
        bias = node.along(node.cast(node.input(3), kind), 1, rank + 2)
        result = node.call(binary.Add, result, bias)
    return node.cast(result, dtype_of(node.input(0)))


def _between(node: NodeContext, x: Expr, places: list[Expr], sizes: tuple[int, ...]) -> Expr:
    """Interpolate linearly between the neighbours of each place, 0 outside.

    Args:
        node: The node.
        x: ``[rows, channels, elements]``.
        places: For each of the sizes, ``[rows, 1, points]``.
        sizes: Whose product is ``elements``.
    """
    rows, channels, _ = tensor_type(x).static_shape
    points = tensor_type(places[0]).static_shape[2]
    floors = [node.call(unary.Floor, place) for place in places]
    total: Expr = node.scalar(0, dtype_of(x))
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        number: Expr = node.scalar(0, DType.INT64)
        factor: Expr = node.scalar(1, dtype_of(x))
        for place, floor, side, size in zip(places, floors, corner, sizes, strict=True):
            near = node.call(binary.Add, floor, node.scalar(side, dtype_of(x)))
            share = _share(node, place, near, size)
            factor = node.call(binary.Multiply, factor, share)
            limits = unary.Clip.Attrs(min=0.0, max=float(size - 1))
            index = node.cast(node.call(unary.Clip, near, attrs=limits), DType.INT64)
            scaled = node.call(binary.Multiply, number, node.scalar(size, DType.INT64))
            number = node.call(binary.Add, scaled, index)
        spread = node.broadcast(number, (rows, channels, points))
        attrs = indexing.GatherElements.Attrs(axis=2)
        element = node.call(indexing.GatherElements, x, spread, attrs=attrs)
        part = node.call(binary.Multiply, element, factor)
        total = node.call(binary.Add, total, part)
    return total


def _share(node: NodeContext, place: Expr, near: Expr, size: int) -> Expr:
    """One minus the distance of a neighbour, 0 of one that is outside."""
    kind = dtype_of(place)
    apart = node.call(unary.Abs, node.call(binary.Subtract, place, near))
    share = node.call(binary.Subtract, node.scalar(1, kind), apart)
    low = node.call(compare.GreaterEqual, near, node.scalar(0, kind))
    high = node.call(compare.LessEqual, near, node.scalar(size - 1, kind))
    inside = node.call(binary.LogicalAnd, low, high)
    return node.call(compare.Where, inside, share, node.scalar(0, kind))


CONVERTERS = MappingProxyType({"DeformConv": deform_conv})
