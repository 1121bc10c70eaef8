# SPDX-License-Identifier: Apache-2.0
"""Columns added up to an image: a transposed convolution that puts each tap where it came from.

As a convolution, each result would be multiplied with every tap of the identity, of which one is
1. Here each tap adds its plane to the result, shifted::

    parallel: planes of the result
      plane = 0
      for tap: for row: plane[row * stride + shift, ...] += column[tap, row, ...]   # in vectors

A plane stays in the first-level cache up to 90 x 90, in the second-level one up to 500 x 500.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, tensor_type
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.nn import ConvTranspose
from intarsia_ir.ops.recurrent_loops import buffer_of, items, set_items, spread
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import parallel, seq, serial
from intarsia_ir.tir.expr import PrimExpr, const, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Seq, Stmt
from intarsia_runtime.dtype import DType

Array = np.ndarray

_MOST_TAPS = 64
"""Taps up to which each has loops of its own."""

_WIDTHS = (16, 8, 4, 2, 1)
"""Elements that are added together, the most first."""


def add_columns(function: Function) -> Function:
    """Return an equivalent function; transposed convolutions of images by an identity change."""
    return rewrite_function(function, _added)


def _added(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or node.op is not ConvTranspose or len(node.args) != 2:
        return None
    attrs, (data, weight), kind = node.attrs, node.args, tensor_type(node)
    if not isinstance(attrs, ConvTranspose.Attrs) or not isinstance(weight, Constant):
        return None
    if kind.dtype is not DType.FLOAT32 or kind.rank != 4 or not kind.is_static:
        return None
    (batch, channels, *sizes), kernel = kind.static_shape, weight.data.shape[2:]
    taps = prod(kernel)
    if not 1 < taps <= _MOST_TAPS or weight.data.shape[:2] != (channels * taps, 1):
        return None
    eye = np.eye(taps, dtype=weight.data.dtype)
    if attrs.groups != channels or not np.all(weight.data.reshape(channels, taps, taps) == eye):
        return None
    if not tensor_type(data).elements or not kind.elements or batch < 1:
        return None
    own = ColumnsToImage.Attrs(
        kernel=(kernel[0], kernel[1]),
        strides=(attrs.strides[0], attrs.strides[1]),
        dilation=(attrs.dilation[0], attrs.dilation[1]),
        before=(attrs.padding[0][0], attrs.padding[1][0]),
        sizes=(sizes[0], sizes[1]),
    )
    return call(ColumnsToImage, data, attrs=own, span=node.span)


@operator("cpu.columns_to_image", OpKind.OPAQUE)
class ColumnsToImage(Op):
    """Sum of the taps of ``data[N, C * taps, H, W]``, each moved to its place: ``[N, C, *sizes]``.

    Tap ``k`` of column ``i`` belongs to ``i * stride + k * dilation - before`` in each dimension.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """As of ``nn.conv_transpose``; ``before``: padding in front; ``sizes``: of images."""

        kernel: tuple[int, int]
        strides: tuple[int, int]
        dilation: tuple[int, int]
        before: tuple[int, int]
        sizes: tuple[int, int]

    @staticmethod
    def type_rule(attrs: Attrs, data: TensorType) -> TensorType:
        """``[N, C, *sizes]``."""
        batch, columns = data.static_shape[:2]
        return data.with_shape((batch, columns // prod(attrs.kernel), *attrs.sizes))

    @staticmethod
    def reference(attrs: Attrs, data: Array) -> Array:
        """Add slices up."""
        batch, columns, *counts = data.shape
        taps = data.reshape(batch, columns // prod(attrs.kernel), *attrs.kernel, *counts)
        result = np.zeros((*taps.shape[:2], *attrs.sizes), data.dtype)
        for tap in product(*map(range, attrs.kernel)):
            (rows, y), (places, x) = (_range(attrs, d, tap[d], counts[d]) for d in range(2))
            down, right = (_steps(attrs, d, *place) for d, place in enumerate((y, x)))
            result[:, :, down, right] += taps[:, :, *tap, slice(*rows), slice(*places)]
        return result

    @staticmethod
    def loops(attrs: Attrs, data: TensorType) -> PrimFunc:
        """Planes in parallel, taps one after the other."""
        columns = buffer_of("columns", data)
        out = buffer_of("out", ColumnsToImage.type_rule(attrs, data))
        channels = out.shape[1]

        def plane(number: PrimExpr) -> Stmt:
            place = (number // channels, number % channels)
            zero = const(0.0, DType.FLOAT32)

            def cleared(y: PrimExpr) -> Stmt:
                def one(x: PrimExpr, width: int) -> Stmt:
                    return set_items(out, *place, y, x, spread(zero, width))

                return _along(attrs.sizes[1], one)

            taps = [
                _tap(attrs, columns, out, place, tap) for tap in product(*map(range, attrs.kernel))
            ]
            return seq(serial(attrs.sizes[0], cleared, "y"), *taps)

        body = parallel(out.shape[0] * channels, plane, "plane")
        return PrimFunc("columns_to_image", (columns, out), 1, body)


def _tap(
    attrs: ColumnsToImage.Attrs, columns: Buffer, out: Buffer, plane: tuple[PrimExpr, PrimExpr],
    tap: tuple[int, ...],
) -> Stmt:  # fmt: skip
    """Add what one tap has in a plane to the results."""
    counts = columns.shape[2:]
    (rows, y), (places, x) = (_range(attrs, d, tap[d], counts[d]) for d in range(2))
    channel = plane[1] * prod(attrs.kernel) + tap[0] * attrs.kernel[1] + tap[1]
    down, right = attrs.strides

    def row(r: PrimExpr) -> Stmt:
        def one(c: PrimExpr, width: int) -> Stmt:
            to = (*plane, r * down + y[0], c * right + x[0])
            taken = items(columns, plane[0], channel, r + rows[0], c + places[0], width)
            return set_items(out, *to, items(out, *to, width) + taken)

        return _along(places[1] - places[0], one, _WIDTHS if right == 1 else _WIDTHS[-1:])

    return serial(max(0, rows[1] - rows[0]), row, "row")


def _range(
    attrs: ColumnsToImage.Attrs, d: int, tap: int, count: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return which columns have a tap inside the image, and where the first and last of them go."""
    stride, moved = attrs.strides[d], tap * attrs.dilation[d] - attrs.before[d]
    first = max(0, -(moved // stride))
    end = max(first, min(count, (attrs.sizes[d] - 1 - moved) // stride + 1))
    return (first, end), (first * stride + moved, end * stride + moved)


def _steps(attrs: ColumnsToImage.Attrs, d: int, first: int, end: int) -> slice:
    return slice(first, max(first, end - attrs.strides[d] + 1), attrs.strides[d])


def _along(
    count: int, body: Callable[[PrimExpr, int], Stmt], widths: tuple[int, ...] = _WIDTHS
) -> Stmt:
    """Do ``body(first, width)`` for a row, each element once."""
    parts: list[Stmt] = []
    done = 0
    for width in widths:
        number = max(0, count - done) // width

        def some(n: PrimExpr, width: int = width, done: int = done) -> Stmt:
            return body(n * width + done, width)

        if number:
            parts.append(serial(number, some, "x") if number > 1 else some(index(0)))
        done += number * width
    return seq(*parts) if parts else Seq(())
