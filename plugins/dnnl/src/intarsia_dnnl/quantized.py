# SPDX-License-Identifier: Apache-2.0
"""Primitives on 8-bit integers.

The library's result is ``saturate(round(post(scales * accumulator + bias)) + zero point)`` in
float32, ties to even. Programs bring one vector of scales that takes the accumulator to the units
of the result, so neither the data nor the result has a scale of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .assembly import Assembly, MemoryTensor
from .grouping import grouped_shape, weights_layout
from .names import (
    BINARY,
    CONVOLUTION_DIRECT,
    DECONVOLUTION_DIRECT,
    FORWARD_INFERENCE,
    POOLING,
    Arg,
    Query,
)
from .program import PrimitiveNode
from .sdk import longs


def _quantization(
    a: Assembly, node: PrimitiveNode, scaled: Arg, scales: int, mask: int
) -> tuple[Callable[[int], None], list[tuple[int, MemoryTensor]]]:
    """Return what completes the attributes of a primitive, and the arguments that go with it.

    Args:
        a: The region.
        node: With the attributes ``src_zero`` and ``dst_zero``.
        scaled: The argument that has scales.
        scales: Their value.
        mask: Which of its dimensions they run along.
    """
    zeros = [(Arg.SRC, node.integer("src_zero")), (Arg.DST, node.integer("dst_zero"))]
    used = [(role, number) for role, number in zeros if number]

    def prepare(attribute: int) -> None:
        a.dnnl.call("primitive_attr_set_scales_mask", attribute, scaled, mask)
        for role, _ in used:
            a.dnnl.call("primitive_attr_set_zero_points_mask", attribute, role, 0)

    arguments = [(Arg.SCALES_OF | scaled, a.plain(scales))]
    arguments += [(Arg.ZERO_POINT_OF | role, a.integer(number)) for role, number in used]
    return prepare, arguments


def _convolution(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, (source, weights, scales, *bias) = a.dnnl, node.args
    transposed = node.kind == "qdeconv"
    name = "deconvolution" if transposed else "convolution"
    shape = grouped_shape(a, node)
    channels = 1 if len(shape) == len(a.shapes[source]) else 3
    prepare, more = _quantization(
        a, node, Arg.WEIGHTS, scales, channels if a.shapes[scales] != (1,) else 0
    )
    if transposed:
        inner = len(shape) - len(a.shapes[source])
        shape = (*shape[:inner], shape[inner + 1], shape[inner], *shape[inner + 2 :])
    numbers = (
        longs(node.ints("strides")),
        longs([size - 1 for size in node.ints("dilation")]),
        longs(node.ints("padding_low")),
        longs(node.ints("padding_high")),
    )
    added = a.row_major(bias[0]) if bias else None
    layouts = (
        a.free(source),
        dnnl.any_layout(shape, a.dtypes[weights]),
        added,
        a.free(node.result),
    )

    def create(_candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            f"{name}_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE),
            DECONVOLUTION_DIRECT if transposed else CONVOLUTION_DIRECT,
            *(*layouts, *numbers, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        given = a.plain(weights)
        kernel = MemoryTensor(
            weights_layout(a, node, transposed=transposed), given.buffer, given.offset
        )
        return [
            (Arg.SRC, a.in_layout(a.values[source], dnnl.queried(made, Query.SRC))),
            (Arg.WEIGHTS, a.in_layout(kernel, dnnl.queried(made, Query.WEIGHTS))),
            *((Arg.BIAS, a.plain(value)) for value in bias),
            *more,
        ]

    a.build(node, create, operands, [()], prepare)


def _matmul(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, (left, right, scales, *bias) = a.dnnl, node.args
    rank = len(a.shapes[node.result])
    mask = 1 << (rank - 1) if a.shapes[scales] != (1,) else 0
    prepare, more = _quantization(a, node, Arg.WEIGHTS, scales, mask)
    row = None
    if bias:
        row = dnnl.plain((*(1,) * (rank - 1), a.shapes[node.result][-1]), a.dtypes[bias[0]])
    to = a.row_major(node.result)
    candidates = [(a.row_major(left), a.free(right), to), (a.free(left), a.free(right), to)]

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        one, two, target = candidate
        return dnnl.try_make(
            "matmul_primitive_desc_create", dnnl.engine, one, two, row, target, attribute
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        arguments: list[tuple[int, MemoryTensor]] = [
            (Arg.SRC, a.in_layout(a.values[left], dnnl.queried(made, Query.SRC))),
            (Arg.WEIGHTS, a.in_layout(a.values[right], dnnl.queried(made, Query.WEIGHTS))),
            *more,
        ]
        if row is not None:
            given = a.plain(bias[0])
            arguments.append((Arg.BIAS, MemoryTensor(row, given.buffer, given.offset)))
        return arguments

    a.build(node, create, operands, candidates, prepare)


def _add(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, (left, right, *scales) = a.dnnl, node.args
    one = a.dense(left)
    free = a.free(node.result)
    plains = (a.row_major(left), a.row_major(right), a.row_major(node.result))

    def prepare(attribute: int) -> None:
        for role in (Arg.SRC, Arg.SRC_1):
            dnnl.call("primitive_attr_set_scales_mask", attribute, role, 0)

    same = dnnl.equal(plains[0], one.desc) or a.shapes[left] == a.shapes[right]
    like = _like(a, right, one.desc) if same else a.dense(right).desc
    candidates = [(one.desc, like, free), plains]

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "binary_primitive_desc_create", dnnl.engine, BINARY["add"], *candidate, attribute
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        roles = (Arg.SRC, Arg.SRC_1)
        arguments: list[tuple[int, MemoryTensor]] = []
        for index, (role, value) in enumerate(zip(roles, (left, right), strict=True)):
            wanted = dnnl.queried(made, Query.SRC, index)
            arguments.append((role, a.in_layout(a.values[value], wanted)))
            arguments.append((Arg.SCALES_OF | role, a.plain(scales[index])))
        return arguments

    a.build(node, create, operands, candidates, prepare)


def _like(a: Assembly, value: int, desc: int) -> int:
    """Describe a value in the layout ``desc`` of another of the same shape, in its own type."""
    strides = a.dnnl.strides(desc, len(a.shapes[value]))
    if strides is None:
        return a.values[value].desc
    return a.dnnl.strided(a.shapes[value], strides, a.dtypes[value])


def _convert(a: Assembly, node: PrimitiveNode) -> None:
    """Quantize or dequantize: a reorder, which may change the layout on the way.

    Not with a zero point: oneDNN 3.2's ``jit:uni`` leaves it out of channels-last images of bytes
    that become row-major where there are 64 channels and an odd number of places.
    """
    dnnl, (source, scales) = a.dnnl, node.args
    tensor = a.values[source]
    prepare, more = _quantization(a, node, Arg.SRC, scales, 0)
    strides = dnnl.strides(tensor.desc, len(a.shapes[source]))
    same = (
        None if strides is None else dnnl.strided(a.shapes[source], strides, a.dtypes[node.result])
    )
    shifts = any(node.integer(name) for name in ("src_zero", "dst_zero"))
    hint = None if shifts and same is not None else a.layout_hints.get(node.result)
    targets = [same if hint is None else hint.desc, a.row_major(node.result)]

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "reorder_primitive_desc_create",
            *(tensor.desc, dnnl.engine, candidate[0], dnnl.engine, attribute),
        )

    def operands(_made: int) -> list[tuple[int, MemoryTensor]]:
        return [(Arg.SRC, tensor), *more]

    a.build(node, create, operands, [(desc,) for desc in targets if desc is not None], prepare)


def _pooling(a: Assembly, node: PrimitiveNode) -> None:
    """A mean over windows, then a linear function that takes it to the units of the result."""
    dnnl, source = a.dnnl, a.dense(node.args[0])
    spatial = node.ints("kernel")
    numbers = (
        longs(node.ints("strides")),
        longs(spatial),
        longs([0] * len(spatial)),
        longs(node.ints("padding_low")),
        longs(node.ints("padding_high")),
    )

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "pooling_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, POOLING["avg_exclude_padding"]),
            *(*candidate, *numbers, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        wanted = dnnl.queried(made, Query.SRC)
        return [(Arg.SRC, a.in_layout(a.values[node.args[0]], wanted))]

    def nothing(_attribute: int) -> None:
        """The linear function is a post-op."""

    free = a.free(node.result)
    candidates = [(source.desc, free), (a.row_major(node.args[0]), free)]
    a.build(node, create, operands, candidates, nothing)


BUILDERS: Mapping[str, Callable[[Assembly, PrimitiveNode], None]] = MappingProxyType(
    {
        "qconv": _convolution,
        "qdeconv": _convolution,
        "qmatmul": _matmul,
        "qadd": _add,
        "convert": _convert,
        "qmean": _pooling,
    }
)
"""Kind of node to what makes its primitives."""
