# SPDX-License-Identifier: Apache-2.0
"""Resizing of images of open size: each dimension by its neighbours, as PyTorch finds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, generate, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size

from .context import AtenContext, rank_of, sizes_of


def resize_nearest(node: AtenContext, x: Expr, factors: Sequence[float | None]) -> Expr:
    """Take the element in front of each place."""
    for axis, factor in enumerate(factors, 2):
        size, wanted = sizes_of(x)[axis], node.result.shape[axis]
        if size == wanted:
            continue
        step = _step(node, size, wanted, factor)
        places = node.call(unary.Floor, node.call(binary.Multiply, _numbers(node, wanted), step))
        x = node.onnx("Gather", x, _within(node, places, size), axis=axis)
    return x


def resize_linear(
    node: AtenContext, x: Expr, factors: Sequence[float | None], *, aligned: bool
) -> Expr:
    """Interpolate between the two elements around each place."""
    for axis, factor in enumerate(factors, 2):
        size, wanted = sizes_of(x)[axis], node.result.shape[axis]
        if size == wanted:
            continue
        places = _places(node, size, wanted, factor, aligned=aligned)
        places = node.call(binary.Maximum, places, node.scalar(0, DType.FLOAT32))
        below = node.call(unary.Floor, places)
        rest = _along(node, node.call(binary.Subtract, places, below), axis, rank_of(x))
        one = node.scalar(1, DType.FLOAT32)
        sides = below, node.call(binary.Add, below, one)
        low, high = (node.onnx("Gather", x, _within(node, side, size), axis=axis) for side in sides)
        change = node.call(binary.Multiply, rest, node.call(binary.Subtract, high, low))
        x = node.call(binary.Add, low, change)
    return x


def resize_cubic(
    node: AtenContext, x: Expr, factors: Sequence[float | None], *, aligned: bool
) -> Expr:
    """Interpolate between the four elements around each place, those at the edges repeated.

    The weight of an element is Keys' cubic of its distance, with PyTorch's ``a`` of -0.75.
    """
    for axis, factor in enumerate(factors, 2):
        size, wanted = sizes_of(x)[axis], node.result.shape[axis]
        if size == wanted:
            continue
        places = _places(node, size, wanted, factor, aligned=aligned)
        below = node.call(unary.Floor, places)
        rest = node.call(binary.Subtract, places, below)
        parts: list[Expr] = []
        for offset in (-1, 0, 1, 2):
            place = node.call(binary.Add, below, node.scalar(offset, DType.FLOAT32))
            found = node.onnx("Gather", x, _within(node, place, size), axis=axis)
            distance = node.call(binary.Subtract, rest, node.scalar(offset, DType.FLOAT32))
            weight = _along(node, _keys(node, distance, near=offset in (0, 1)), axis, rank_of(x))
            parts.append(node.call(binary.Multiply, found, weight))
        x = reduce(lambda a, b: node.call(binary.Add, a, b), parts)
    return x


def _keys(node: AtenContext, distance: Expr, *, near: bool) -> Expr:
    """Return Keys' cubic of distances of either sign, all up to 1 or all from 1 to 2."""
    a = -0.75
    terms = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    far = node.call(unary.Abs, distance)
    value: Expr = node.scalar(terms[0], DType.FLOAT32)
    for term in terms[1:]:
        value = node.call(binary.Multiply, value, far)
        value = node.call(binary.Add, value, node.scalar(term, DType.FLOAT32))
    return value


def _along(node: AtenContext, x: Expr, axis: int, rank: int) -> Expr:
    """Reshape a vector so that it broadcasts along one dimension of a tensor."""
    shape: list[Size] = [1] * rank
    (shape[axis],) = sizes_of(x)
    return node.reshape(node.cast(x, node.dtype), shape)


def _places(
    node: AtenContext, size: Size, wanted: Size, factor: float | None, *, aligned: bool
) -> Expr:
    """Return where each element of the result lies among those of the operand."""
    numbers = _numbers(node, wanted)
    if aligned:
        step = node.call(
            binary.Divide,
            node.as_tensor(size - 1, DType.FLOAT32),
            node.call(
                binary.Maximum,
                node.as_tensor(wanted - 1, DType.FLOAT32),
                node.scalar(1, DType.FLOAT32),
            ),
        )
        return node.call(binary.Multiply, numbers, step)
    half = node.scalar(0.5, DType.FLOAT32)
    middle = node.call(binary.Add, numbers, half)
    scaled = node.call(binary.Multiply, middle, _step(node, size, wanted, factor))
    return node.call(binary.Subtract, scaled, half)


def _step(node: AtenContext, size: Size, wanted: Size, factor: float | None) -> Expr:
    """Return how far apart elements of the result lie among those of the operand."""
    if factor is not None:
        return node.scalar(1 / factor, DType.FLOAT32)
    sizes = (node.as_tensor(one, DType.FLOAT32) for one in (size, wanted))
    return node.call(binary.Divide, *sizes)


def _numbers(node: AtenContext, count: Size) -> Expr:
    attrs = generate.Arange.Attrs(start=0, stop=extents([count])[0], step=1, dtype=DType.INT64)
    return node.cast(node.call(generate.Arange, attrs=attrs), DType.FLOAT32)


def _within(node: AtenContext, places: Expr, size: Size) -> Expr:
    """Return places as integers that are none before the first or beyond the last element."""
    whole = node.cast(places, DType.INT64)
    whole = node.call(binary.Maximum, whole, node.scalar(0, DType.INT64))
    return node.call(binary.Minimum, whole, node.as_tensor(size - 1, DType.INT64))
