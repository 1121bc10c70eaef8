# SPDX-License-Identifier: Apache-2.0
"""Windows put back into images: columns added up, and pools with the places of their elements."""

from __future__ import annotations

import itertools
import math
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import binary, compare, generate, nn, scatter, slicing
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, product

from ..builder import dtype_of, sizes_of
from ..context import NodeContext
from .window import NodeWindow, read_window

I64 = DType.INT64
MOST_TAPS = 64
"""Taps of a window whose places are looked for one after the other."""


def col2im(node: NodeContext) -> Expr:
    """Convert Col2Im: a transposed convolution whose weights put each tap where it came from."""
    x, shape = node.input(0), node.static_shape(0)
    image = node.required_ints(1, "the size of the image")
    kernel = node.required_ints(2, "the size of the blocks")
    rank = len(image)
    strides = node.integers("strides", (1,) * rank)
    dilation = node.integers("dilations", (1,) * rank)
    pads = node.integers("pads", (0,) * (2 * rank))
    taps = math.prod(kernel)
    if len(shape) != 3 or len(kernel) != rank or taps < 1 or shape[1] % taps:
        raise node.model_error(f"blocks of {kernel} in columns {node.type_of(0)}")
    if not len(strides) == len(dilation) == rank == len(pads) / 2 or min(strides, default=1) < 1:
        raise node.model_error(f"strides {strides}, dilations {dilation}, pads {pads} of {image}")
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    rows = zip(image, padding, kernel, dilation, strides, strict=True)
    rooms = [(n + sum(p) - d * (k - 1) - 1, s) for n, p, k, d, s in rows]
    steps = [room // stride + 1 for room, stride in rooms]
    why = f"{node.span}: an image of {image} has {math.prod(steps)} blocks"
    if min(steps, default=0) < 1 or not require_equal(shape[2], math.prod(steps), why):
        raise node.model_error(f"{shape[2]} blocks; an image of {image} has {math.prod(steps)}")
    channels = shape[1] // taps
    eye = np.eye(taps, dtype=numpy_dtype(dtype_of(x))).reshape(taps, 1, *kernel)
    weight = node.array(np.tile(eye, (channels, *[1] * (rank + 1))))
    attrs = nn.ConvTranspose.Attrs(
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=channels,
        output_padding=tuple(room % stride for room, stride in rooms),
    )
    return node.call(nn.ConvTranspose, node.reshape(x, (*shape[:2], *steps)), weight, attrs=attrs)


def max_unpool(node: NodeContext) -> Expr:
    """Convert MaxUnpool: elements go where the places say, zeros elsewhere."""
    x, places = node.input(0), node.input(1)
    shape = node.static_shape(0)
    window = read_window(node, None)
    spatial = zip(shape[2:], window.strides, window.kernel, window.padding, strict=True)
    natural = (*shape[:2], *((n - 1) * s + k - sum(p) for n, s, k, p in spatial))
    count = math.prod(natural)
    empty = node.full((count,), 0, dtype_of(x))
    flat = [node.reshape(t, (math.prod(shape),)) for t in (places, x)]
    attrs = scatter.ScatterElements.Attrs(axis=0, reduction="none")
    result = node.reshape(node.call(scatter.ScatterElements, empty, *flat, attrs=attrs), natural)
    if node.optional(2) is None:
        return result
    wanted = node.required_ints(2, "the shape of the result")
    if len(wanted) != len(natural) or any(a < b for a, b in zip(wanted, natural, strict=True)):
        raise node.model_error(f"a result of {wanted}; its elements fill {natural}")
    widths = tuple((0, a - b) for a, b in zip(wanted, natural, strict=True))
    return node.call(slicing.Pad, result, attrs=slicing.Pad.Attrs(widths=widths))


def max_pool_places(node: NodeContext, pooled: Expr) -> Expr:
    """Return the places, in the flattened tensor, of what MaxPool took: the first of equals.

    Sizes may be open. A place is that of the window's first tap, and as much further for each tap.
    """
    x, sizes = node.input(0), sizes_of(node.input(0))
    window = read_window(node, None)
    if math.prod(window.kernel) > MOST_TAPS:
        raise node.unsupported(f"the indices of a MaxPool over windows of {window.kernel}")
    counts, rank = extents(sizes_of(pooled)[2:]), len(window.kernel)
    steps = _plane_steps(sizes[2:], columns=bool(node.integer("storage_order", 0)))
    beyond = _beyond(node, window)
    widths = [
        (0, 0),
        (0, 0),
        *((low, b) for (low, _), b in zip(window.padding, beyond, strict=True)),
    ]
    grown = node.call(slicing.Pad, x, attrs=slicing.Pad.Attrs(widths=tuple(widths)))
    first, along = _along_planes(node, sizes), list[Expr]()
    for axis, (count, (low, _)) in enumerate(zip(counts, window.padding, strict=True)):
        along.append(_spots(node, axis, rank, count, -low, window.strides[axis]))
        step = node.full((), extents([steps[axis]])[0], I64)
        first = node.call(binary.Add, first, node.call(binary.Multiply, along[axis], step))
    found: Expr = node.full(extents(sizes_of(pooled)), -1, I64)
    for tap in reversed(list(itertools.product(*map(range, window.kernel)))):
        value = grown
        offsets = [t * d for t, d in zip(tap, window.dilation, strict=True)]
        for axis, count in enumerate(counts):
            value = _strided(node, value, 2 + axis, offsets[axis], window.strides[axis], count)
        best = node.call(compare.Equal, value, pooled)
        for axis, spots in enumerate(along):
            if offsets[axis] < window.padding[axis][0]:
                inside = node.call(compare.GreaterEqual, spots, node.scalar(-offsets[axis], I64))
                best = node.call(binary.LogicalAnd, best, inside)
            if offsets[axis] + beyond[axis] >= window.extent[axis]:
                limit = node.full((), extents([sizes[2 + axis] - offsets[axis]])[0], I64)
                best = node.call(binary.LogicalAnd, best, node.call(compare.Less, spots, limit))
        distance = sum((a * step for a, step in zip(offsets, steps, strict=True)), 0)
        here = node.call(binary.Add, first, node.full((), extents([distance])[0], I64))
        found = node.call(compare.Where, best, here, found)
    return found


def _plane_steps(sizes: tuple[Size, ...], *, columns: bool) -> list[Size]:
    """Return how far neighbours along each dimension of a plane are apart."""
    if columns:
        return [product(sizes[:axis]) for axis in range(len(sizes))]
    return [product(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _beyond(node: NodeContext, window: NodeWindow) -> list[int]:
    """Return how far the taps of the last window may reach behind each dimension."""
    up = node.integer("ceil_mode", 0)
    pairs = zip(window.padding, window.strides, strict=True)
    return [high + (stride - 1 if up else 0) for (_, high), stride in pairs]


def _along_planes(node: NodeContext, sizes: tuple[Size, ...]) -> Expr:
    """Return the place of the first element of each plane, ``[N, C, 1 ...]``."""
    planes = node.call(generate.Arange, attrs=_numbers(extents([product(sizes[:2])])[0]))
    plane = node.full((), extents([product(sizes[2:])])[0], I64)
    shape = (*sizes[:2], *[1] * (len(sizes) - 2))
    return node.reshape(node.call(binary.Multiply, planes, plane), shape)


def _spots(node: NodeContext, axis: int, rank: int, count: int, begin: int, step: int) -> Expr:
    """Return where along a dimension the first taps of windows lie, ``[n, 1 ...]``."""
    spots = node.call(generate.Arange, attrs=_numbers(count))
    if step != 1:
        spots = node.call(binary.Multiply, spots, node.scalar(step, I64))
    if begin:
        spots = node.call(binary.Add, spots, node.scalar(begin, I64))
    return node.reshape(spots, (count, *[1] * (rank - axis - 1)))


def _numbers(count: int) -> generate.Arange.Attrs:
    return generate.Arange.Attrs(start=0, stop=count, step=1, dtype=I64)


def _strided(node: NodeContext, x: Expr, axis: int, first: int, stride: int, count: int) -> Expr:
    sizes = extents(sizes_of(x))
    begin, end, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    begin[axis], end[axis], strides[axis] = first, first + (count - 1) * stride + 1, stride
    attrs = slicing.StridedSlice.Attrs(begin=tuple(begin), end=tuple(end), strides=tuple(strides))
    return node.call(slicing.StridedSlice, x, attrs=attrs)


CONVERTERS = MappingProxyType({"Col2Im": col2im, "MaxUnpool": max_unpool})
