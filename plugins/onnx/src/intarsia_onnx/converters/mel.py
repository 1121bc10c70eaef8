# SPDX-License-Identifier: Apache-2.0
"""MelWeightMatrix whose bands or frequencies only the run knows."""

from __future__ import annotations

import math

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, generate, indexing, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from ..context import NodeContext
from ..tensors import element_type


def mel_weight_matrix(node: NodeContext) -> Expr:
    """Convert MelWeightMatrix: triangles, evenly spaced on the mel scale, one column a band.

    A band rises from its start to 1 at its peak and falls to its end; its peak is the end of the
    band before. All three are frequencies rounded down to bins. Computed in float64.
    """
    (bands,), (length,) = (node.required_sizes(n, "the count") for n in range(2))
    numbers = _numbers(node, bands)
    edges = _edges(node, bands, length)
    start, peak, end = (_edge(node, edges, numbers, first) for first in range(3))
    bins = length // 2 + 1
    column = node.reshape(_numbers(node, bins), (bins, 1))
    rising = _share(node, column, start, peak, none=1)
    falling = _share(node, column, end, peak, none=-1)
    before = node.call(compare.Less, column, peak)
    side = node.call(compare.Where, before, rising, falling)
    positive = node.call(binary.Maximum, side, node.scalar(0, DType.FLOAT64))
    is_peak = node.call(compare.Equal, column, peak)
    made = node.call(compare.Where, is_peak, node.scalar(1, DType.FLOAT64), positive)
    return node.cast(made, element_type(node.integer("output_datatype", 1), str(node.span)))


def _edges(node: NodeContext, bands: Size, length: Size) -> Expr:
    """Return the bins ``[bands + 2]`` of the limits of all bands, whole numbers."""

    def number(index: int) -> Expr:
        return node.reshape(node.cast(node.input(index), DType.FLOAT64), (1,))

    def times(x: Expr, factor: float) -> Expr:
        return node.call(binary.Multiply, x, node.scalar(factor, DType.FLOAT64))

    def plus(x: Expr, term: float) -> Expr:
        return node.call(binary.Add, x, node.scalar(term, DType.FLOAT64))

    rate, low, high = (
        number(2),
        *(
            times(node.call(unary.Log, plus(times(number(n), 1 / 700), 1)), 2595 / math.log(10))
            for n in (3, 4)
        ),
    )
    count = node.cast(node.size_tensor(bands + 2), DType.FLOAT64)
    step = node.call(binary.Divide, node.call(binary.Subtract, high, low), count)
    places = node.call(binary.Multiply, _numbers(node, bands + 2), step)
    mels = node.call(binary.Add, places, low)
    hertz = times(plus(node.call(unary.Exp, times(mels, math.log(10) / 2595)), -1), 700)
    samples = node.cast(node.size_tensor(length + 1), DType.FLOAT64)
    scaled = node.call(binary.Divide, node.call(binary.Multiply, hertz, samples), rate)
    return node.call(unary.Floor, scaled)


def _edge(node: NodeContext, edges: Expr, numbers: Expr, first: int) -> Expr:
    """Return the first, second or third limit of every band."""
    at = node.call(binary.Add, node.cast(numbers, DType.INT64), node.array(np.array(first)))
    return node.call(indexing.Take, edges, at, attrs=indexing.Take.Attrs(axis=0))


def _share(node: NodeContext, column: Expr, foot: Expr, peak: Expr, *, none: int) -> Expr:
    """Return how far bins are from the foot of a band on the way to its peak.

    Where the peak is the foot, ``none`` is the way, of a sign that gives no bin a positive share.
    """
    way = node.call(binary.Subtract, peak, foot)
    is_none = node.call(compare.Equal, way, node.scalar(0, DType.FLOAT64))
    safe = node.call(compare.Where, is_none, node.scalar(none, DType.FLOAT64), way)
    return node.call(binary.Divide, node.call(binary.Subtract, column, foot), safe)


def _numbers(node: NodeContext, count: Size) -> Expr:
    stop = extents((count,))[0]
    attrs = generate.Arange.Attrs(start=0, stop=stop, step=1, dtype=DType.FLOAT64)
    return node.call(generate.Arange, attrs=attrs)
