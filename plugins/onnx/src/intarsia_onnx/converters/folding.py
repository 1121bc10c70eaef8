# SPDX-License-Identifier: Apache-2.0
"""Windows put back into images: columns added up, and pools with the places of their elements."""

from __future__ import annotations

import itertools
import math
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import compare, nn, scatter, slicing
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType

from ..builder import dtype_of
from ..context import NodeContext
from .window import NodeWindow, read_window

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
    """Return the places, in the flattened tensor, of what MaxPool took: the first of equals."""
    x, shape = node.input(0), node.static_shape(0)
    window = read_window(node, None)
    if math.prod(window.kernel) > MOST_TAPS:
        raise node.unsupported(f"the indices of a MaxPool over windows of {window.kernel}")
    counts = tensor_type(pooled).static_shape[2:]
    found: Expr = node.full(tensor_type(pooled).static_shape, -1, DType.INT64)
    grown = _grown(node, x, window, counts)
    planes = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(counts))
    for tap in reversed(list(itertools.product(*map(range, window.kernel)))):
        value, spots = grown, list[np.ndarray]()
        for i, (t, n) in enumerate(zip(tap, counts, strict=True)):
            first, stride = t * window.dilation[i], window.strides[i]
            value = _strided(node, value, 2 + i, first, stride, n)
            spots.append(first + stride * np.arange(n) - window.padding[i][0])
        flat, inside = _numbers(node, spots, shape[2:])
        here = node.array(planes * math.prod(shape[2:]) + flat)
        best = node.call(compare.Equal, value, pooled)
        if not inside.all():
            never = node.array(np.where(inside, 1, 0).astype(bool))
            no = node.full(tensor_type(pooled).static_shape, 0, DType.BOOL)
            best = node.call(compare.Where, never, best, no)
        found = node.call(compare.Where, best, here, found)
    return found


def _grown(node: NodeContext, x: Expr, window: NodeWindow, counts: tuple[int, ...]) -> Expr:
    """Pad so that each tap of each window is inside."""
    widths = [(0, 0), (0, 0)]
    sizes = tensor_type(x).static_shape[2:]
    for i, (low, _) in enumerate(window.padding):
        needed = (counts[i] - 1) * window.strides[i] + window.extent[i]
        widths.append((low, max(needed - low - sizes[i], 0)))
    return node.call(slicing.Pad, x, attrs=slicing.Pad.Attrs(widths=tuple(widths)))


def _strided(node: NodeContext, x: Expr, axis: int, first: int, stride: int, count: int) -> Expr:
    sizes = tensor_type(x).static_shape
    begin, end, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    begin[axis], end[axis], strides[axis] = first, first + (count - 1) * stride + 1, stride
    attrs = slicing.StridedSlice.Attrs(begin=tuple(begin), end=tuple(end), strides=tuple(strides))
    return node.call(slicing.StridedSlice, x, attrs=attrs)


def _numbers(
    node: NodeContext, spots: list[np.ndarray], sizes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Number the elements of a plane at all crossings of ``spots``; say which are in it."""
    rank = len(sizes)
    column = bool(node.integer("storage_order", 0))
    flat, inside = np.zeros([1] * rank, np.int64), np.ones([1] * rank, bool)
    for i in range(rank - 1, -1, -1) if column else range(rank):
        shape = [-1 if axis == i else 1 for axis in range(rank)]
        spot = spots[i].reshape(shape)
        flat = flat * sizes[i] + spot
        inside = inside & (spot >= 0) & (spot < sizes[i])
    return flat, inside


CONVERTERS = MappingProxyType({"Col2Im": col2im, "MaxUnpool": max_unpool})
