# SPDX-License-Identifier: Apache-2.0
"""Which loops compute which operator: ``schedule(group, target) -> PrimFunc | None``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from intarsia.ir.expr import tensor_type
from intarsia.lower.kernels import FusedGroup
from intarsia.ops.nn import Matmul
from intarsia.ops.pooling import AvgPool, PoolAttrs
from intarsia.ops.shape import Transpose
from intarsia.target.target import Target
from intarsia.tir.buffer import Buffer
from intarsia.tir.expr import PrimExpr, cast, const, maximum
from intarsia.tir.func import PrimFunc
from intarsia.tir.stmt import Stmt
from intarsia.tir.tensor import lowest

from ..operators import ConvAttrs, Dense
from ..target import machine
from .channelwise import Channelwise, channelwise_loops
from .conv import Convolution, conv_loops
from .dense import dense_loops, flat_rows
from .group import Operands, operands
from .loops import load
from .matmul import Product, matmul_loops
from .tile import Shape, tile_shape
from .transpose import as_matrices, transpose_loops
from .window import Window

Schedule: TypeAlias = Callable[[FusedGroup, Target], PrimFunc | None]


def _shape(target: Target, given: Operands) -> Shape:
    return tile_shape(machine(target.options), given.args[0].dtype)


def _window(given: Operands, attrs: ConvAttrs | PoolAttrs) -> Window:
    _, height, width, _ = given.args[0].shape
    _, rows, columns, _ = given.fused.output.shape
    (top, _), (left, _) = attrs.padding
    return Window(
        (height, width),
        (rows, columns),
        (attrs.kernel[0], attrs.kernel[1]),
        (attrs.strides[0], attrs.strides[1]),
        (top, left),
        (attrs.dilation[0], attrs.dilation[1]),
    )


def conv(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``llvm.conv``."""
    given = operands(group)
    if given is None or group.anchor is None or not isinstance(group.anchor.attrs, ConvAttrs):
        return None
    attrs = group.anchor.attrs
    data, weight = given.args
    work = Convolution(data, weight, attrs.outputs, attrs.groups, _window(given, attrs))
    return given.function(conv_loops(_shape(target, given), work, given.finish))


def dense(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``llvm.dense``."""
    given = operands(group)
    if given is None or group.anchor is None or not isinstance(group.anchor.attrs, Dense.Attrs):
        return None
    a, weight = given.args
    outer = list(a.shape[:-1])
    outputs = group.anchor.attrs.outputs
    shape = _shape(target, given)
    return given.function(dense_loops(shape, flat_rows(a), weight, outputs, given.finish, outer))


def matmul(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``matmul`` of two values known at run time."""
    given = operands(group)
    if given is None or group.anchor is None or not isinstance(group.anchor.attrs, Matmul.Attrs):
        return None
    attrs = group.anchor.attrs
    a, b = given.args
    if not a.dtype.is_float or a.dtype.bits < 32:
        return None
    *batch, rows, columns = given.fused.output.shape
    depth = a.shape[-2 if attrs.transpose_a else -1]
    product = Product(
        a, b, tuple(batch), rows, columns, depth, attrs.transpose_a, attrs.transpose_b
    )
    body = matmul_loops(_shape(target, given), product, given.finish)
    return None if body is None else given.function(body)


def depthwise(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``llvm.depthwise``."""
    given = operands(group)
    if given is None or group.anchor is None or not isinstance(group.anchor.attrs, ConvAttrs):
        return None
    data, weight = given.args

    def combine(
        value: PrimExpr, element: PrimExpr, tap: tuple[PrimExpr, PrimExpr], c: PrimExpr
    ) -> PrimExpr:
        return value + element * load(weight, tap[0], tap[1], c)

    def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
        return given.finish(value, indices)

    window = _window(given, group.anchor.attrs)
    work = Channelwise(data, window, const(0, data.dtype), combine, finish)
    return given.function(channelwise_loops(work, _shape(target, given).lanes))


def max_pool(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``llvm.max_pool``."""
    given = operands(group)
    if given is None or group.anchor is None or not isinstance(group.anchor.attrs, PoolAttrs):
        return None
    (data,) = given.args
    if data.dtype.is_float and data.dtype.bits < 32:
        return None

    def combine(
        value: PrimExpr, element: PrimExpr, _tap: tuple[PrimExpr, PrimExpr], _c: PrimExpr
    ) -> PrimExpr:
        return maximum(value, element)

    def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], _taps: PrimExpr) -> Stmt:
        return given.finish(value, indices)

    window = _window(given, group.anchor.attrs)
    start = const(lowest(data.dtype), data.dtype)
    work = Channelwise(data, window, start, combine, finish)
    return given.function(channelwise_loops(work, _shape(target, given).lanes))


def avg_pool(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``llvm.avg_pool``; not where what ceil_mode adds would have to be told from padding."""
    given = operands(group)
    if given is None or group.anchor is None or not isinstance(group.anchor.attrs, AvgPool.Attrs):
        return None
    attrs = group.anchor.attrs
    (data,) = given.args
    if data.dtype.bits < 32 or (attrs.ceil_mode and attrs.count_include_pad):
        return None
    every = attrs.kernel[0] * attrs.kernel[1]

    def combine(
        value: PrimExpr, element: PrimExpr, _tap: tuple[PrimExpr, PrimExpr], _c: PrimExpr
    ) -> PrimExpr:
        return value + element

    def finish(value: PrimExpr, indices: tuple[PrimExpr, ...], taps: PrimExpr) -> Stmt:
        count = const(every, data.dtype) if attrs.count_include_pad else cast(taps, data.dtype)
        return given.finish(value / count, indices)

    work = Channelwise(data, _window(given, attrs), const(0, data.dtype), combine, finish)
    return given.function(channelwise_loops(work, _shape(target, given).lanes))


def transpose(group: FusedGroup, target: Target) -> PrimFunc | None:
    """``transpose`` alone, where it swaps matrices of 32-bit elements."""
    if group.anchor is None or not isinstance(group.anchor.attrs, Transpose.Attrs):
        return None
    kind = tensor_type(group.anchor.args[0])
    lanes = machine(target.options).lanes
    matrices = as_matrices(kind.static_shape, group.anchor.attrs.axes)
    if matrices is None or kind.dtype.bits != 32 or min(matrices[1:]) < lanes:
        return None
    batch, rows, columns = matrices
    source = Buffer("x", (batch, rows, columns), kind.dtype)
    result = Buffer("out", (batch, columns, rows), kind.dtype)
    return PrimFunc(group.name, (source, result), 1, transpose_loops(source, result, lanes))


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        "llvm.avg_pool": avg_pool,
        "llvm.conv": conv,
        "llvm.dense": dense,
        "llvm.depthwise": depthwise,
        "llvm.max_pool": max_pool,
        "matmul": matmul,
        "transpose": transpose,
    }
)
"""Operator name to its schedule."""
