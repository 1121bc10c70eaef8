# SPDX-License-Identifier: Apache-2.0
"""From each kind of node to the library's primitive for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import MappingProxyType

from intarsia_runtime.plugin import ArtifactError

from .assembly import Assembly, Home, MemoryTensor
from .grouping import grouped_shape, weights_layout
from .layouts import is_usual
from .names import (
    BINARY,
    BYTES,
    CONVOLUTION_DIRECT,
    DECONVOLUTION_DIRECT,
    ELTWISE,
    F32,
    FORWARD_INFERENCE,
    LRN_ACROSS_CHANNELS,
    POOLING,
    REDUCTION,
    RESAMPLING,
    SOFTMAX_ACCURATE,
    SOFTMAX_LOG,
    USE_GLOBAL_STATS,
    USE_SCALE,
    USE_SHIFT,
    Arg,
    Query,
)
from .of_none import over_elements
from .program import PrimitiveNode
from .quantized import BUILDERS as QUANTIZED
from .row_product import build_row_product, is_row_product, product_operands
from .sdk import longs


def build_node(assembly: Assembly, node: PrimitiveNode) -> None:
    """Make the primitives of one node.

    Raises:
        ArtifactError: No such kind of node.
        UnsupportedError: The library has no implementation.
    """
    if node.kind not in _BUILDERS:
        raise ArtifactError(f"the region uses '{node.kind}', which this plugin does not know")
    node = over_elements(assembly, node)
    _BUILDERS[node.kind](assembly, node)


def _convolution(a: Assembly, node: PrimitiveNode) -> None:
    transposed = node.kind == "deconv"
    dnnl, source, weights = a.dnnl, node.args[0], node.args[1]
    layout = weights_layout(a, node, transposed=transposed)
    shape = grouped_shape(a, node)
    if transposed:
        order = list(range(len(shape)))
        inner = len(shape) - len(a.shapes[source])
        order[inner], order[inner + 1] = inner + 1, inner
        shape = tuple(shape[axis] for axis in order)
    name = "deconvolution" if transposed else "convolution"
    algorithm = DECONVOLUTION_DIRECT if transposed else CONVOLUTION_DIRECT
    bias = dnnl.plain(a.shapes[node.args[2]]) if len(node.args) > 2 else None
    numbers = (
        longs(node.ints("strides")),
        longs([size - 1 for size in node.ints("dilation")]),
        longs(node.ints("padding_low")),
        longs(node.ints("padding_high")),
    )
    kind = F32 if transposed else a.products
    from_any = dnnl.any_layout(a.shapes[source], kind)
    weights_any, to_any = dnnl.any_layout(shape, kind), a.free(node.result)

    def create(_candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            f"{name}_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, algorithm),
            *(from_any, weights_any, bias, to_any, *numbers, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        given = a.plain(weights)
        kernel = MemoryTensor(layout, given.buffer, given.offset)
        arguments: list[tuple[int, MemoryTensor]] = [
            (Arg.SRC, a.in_layout(a.values[source], dnnl.queried(made, Query.SRC))),
            (Arg.WEIGHTS, a.in_layout(kernel, dnnl.queried(made, Query.WEIGHTS))),
        ]
        if bias is not None:
            arguments.append((Arg.BIAS, a.plain(node.args[2])))
        return arguments

    a.build(node, create, operands, [()])


def _matmul(a: Assembly, node: PrimitiveNode) -> None:
    if is_row_product(a, node):
        build_row_product(a, node)
        return
    dnnl = a.dnnl
    left, right = node.args[0], node.args[1]
    rank = len(a.shapes[node.result])
    constant = a.values[right].buffer.home is Home.CONSTANT
    one_desc = _multiplicable(a, left)
    two_desc = a.values[right].desc if constant else _multiplicable(a, right)
    bias = None
    if len(node.args) > 2:
        bias = dnnl.plain((*(1,) * (rank - 1), a.shapes[node.result][-1]))
    plain_to = a.row_major(node.result)
    plain_left = dnnl.plain(a.shapes[left], a.products)
    layout_hint = a.layout_hints.get(node.result)
    targets = [plain_to]
    if layout_hint is not None and not any(op.kind == "binary" for op in node.post):
        strides, shape = dnnl.strides(layout_hint.desc, rank), a.shapes[node.result]
        if strides is not None and strides[-1] == 1 and strides[-2] >= shape[-1]:
            targets.insert(0, dnnl.strided(shape, strides, a.dtypes[node.result]))
    second = dnnl.any_layout(a.shapes[right], a.products) if constant else two_desc
    candidates = [(one_desc, second, target) for target in targets]
    candidates.append((plain_left, second, plain_to))
    if not constant:
        candidates.append((plain_left, dnnl.plain(a.shapes[right], a.products), plain_to))

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        one, two, to = candidate
        return dnnl.try_make(
            "matmul_primitive_desc_create", dnnl.engine, one, two, bias, to, attribute
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return product_operands(a, node, made, a.values[right], bias)

    a.build(node, create, operands, candidates)


def _multiplicable(a: Assembly, value: int) -> int:
    """Describe an operand with dense rows or columns, as matrix kernels need; as it is if so."""
    tensor, shape = a.values[value], a.shapes[value]
    strides = a.dnnl.strides(tensor.desc, len(shape))
    if strides is None or a.dtypes[value] != a.products:
        return a.dnnl.plain(shape, a.products)
    by_rows = strides[-1] == 1 and strides[-2] >= shape[-1]
    by_columns = strides[-2] == 1 and strides[-1] >= shape[-2]
    return tensor.desc if by_rows or by_columns else a.row_major(value)


def _eltwise(a: Assembly, node: PrimitiveNode) -> None:
    dnnl = a.dnnl
    algorithm = ELTWISE[node.text("algorithm")]
    numbers = (node.number("alpha"), node.number("beta"))

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "eltwise_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, algorithm),
            *(*candidate, *numbers, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [(Arg.SRC, a.in_layout(a.values[node.args[0]], dnnl.queried(made, Query.SRC)))]

    a.build(node, create, operands, [(desc, desc) for desc in a.layouts(node.args[0])])


def _binary(a: Assembly, node: PrimitiveNode) -> None:
    dnnl = a.dnnl
    left, right = node.args
    algorithm = BINARY[node.text("algorithm")]
    one, two = a.dense(left), a.dense(right)
    free = a.free(node.result)
    same = a.shapes[left] == a.shapes[right]
    plains = (a.row_major(left), a.row_major(right))
    candidates = [(*plains, a.row_major(node.result))]
    if same or is_usual(dnnl, one.desc, a.shapes[left]):
        candidates.insert(0, (one.desc, plains[1], free))
        candidates.insert(0, (one.desc, one.desc if same else two.desc, free))

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "binary_primitive_desc_create", dnnl.engine, algorithm, *candidate, attribute
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [
            (Arg.SRC, a.in_layout(a.values[left], dnnl.queried(made, Query.SRC, 0))),
            (Arg.SRC_1, a.in_layout(a.values[right], dnnl.queried(made, Query.SRC, 1))),
        ]

    a.build(node, create, operands, candidates)


def _pooling(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, free = a.dnnl, a.free(node.result)
    algorithm = POOLING[node.text("algorithm")]
    numbers = (
        longs(node.ints("strides")),
        longs(node.ints("kernel")),
        longs([size - 1 for size in node.ints("dilation")]),
        longs(node.ints("padding_low")),
        longs(node.ints("padding_high")),
    )

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "pooling_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, algorithm),
            *(candidate[0], free, *numbers, attribute),
        )

    _in_any_layout(a, node, create)


def _in_any_layout(
    a: Assembly, node: PrimitiveNode, create: Callable[[tuple[int, ...], int], int | None]
) -> None:
    """Build a primitive of one operand, in the layout it has or one that a fast kernel reads."""

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [(Arg.SRC, a.in_layout(a.values[node.args[0]], a.dnnl.queried(made, Query.SRC)))]

    a.build(node, create, operands, [(desc,) for desc in a.layouts(node.args[0])])


def _softmax(a: Assembly, node: PrimitiveNode) -> None:
    dnnl = a.dnnl
    algorithm = SOFTMAX_LOG if node.text("algorithm") == "log" else SOFTMAX_ACCURATE

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "softmax_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, algorithm),
            *(*candidate, node.integer("axis"), attribute),
        )

    _along(a, node, node.integer("axis"), create)


def _along(
    a: Assembly,
    node: PrimitiveNode,
    axis: int,
    create: Callable[[tuple[int, ...], int], int | None],
) -> None:
    """Build a primitive along one axis, which is fast where that axis is dense."""
    shape, source = a.shapes[node.result], a.dense(node.args[0])
    order = [*(place for place in range(len(shape)) if place != axis), axis]
    dense = a.dnnl.permuted(a.dnnl.plain([shape[place] for place in order]), order)

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [(Arg.SRC, a.in_layout(source, a.dnnl.queried(made, Query.SRC)))]

    a.build(node, create, operands, [(source.desc, source.desc), (dense, dense)])


def _layer_norm(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, source = a.dnnl, a.plain(node.args[0])
    same = a.dtypes[node.result] == a.dtypes[node.args[0]]
    flags = USE_SCALE | (USE_SHIFT if len(node.args) > 2 else 0)

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "layer_normalization_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, source.desc, candidate[0], None),
            *(node.number("epsilon"), flags, attribute),
        )

    def operands(_made: int) -> list[tuple[int, MemoryTensor]]:
        roles = (Arg.SCALE, Arg.SHIFT)
        weights = [
            (role, a.plain(value)) for role, value in zip(roles, node.args[1:], strict=False)
        ]
        return [(Arg.SRC, source), *weights]

    a.build(node, create, operands, [(source.desc if same else a.row_major(node.result),)])


def _batch_norm(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, free = a.dnnl, a.free(node.result)
    flags = USE_GLOBAL_STATS | USE_SCALE | USE_SHIFT

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "batch_normalization_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, *candidate),
            *(node.number("epsilon"), flags, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        roles = (Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE)
        weights = [(role, a.plain(value)) for role, value in zip(roles, node.args[1:], strict=True)]
        source = a.in_layout(a.values[node.args[0]], dnnl.queried(made, Query.SRC))
        return [(Arg.SRC, source), *weights]

    layouts = a.layouts(node.args[0])
    a.build(node, create, operands, [(desc, to) for desc in layouts for to in (desc, free)])


def _lrn(a: Assembly, node: PrimitiveNode) -> None:
    dnnl = a.dnnl
    numbers = (node.number("alpha"), node.number("beta"), node.number("bias"))

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "lrn_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, LRN_ACROSS_CHANNELS),
            *(*candidate, node.integer("size"), *numbers, attribute),
        )

    _along(a, node, 1, create)


def _prelu(a: Assembly, node: PrimitiveNode) -> None:
    dnnl = a.dnnl
    slope, free = dnnl.any_layout(a.shapes[node.args[1]]), a.free(node.result)

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        source, result = candidate
        return dnnl.try_make(
            "prelu_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, source, slope, result, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [
            (Arg.SRC, a.in_layout(a.values[node.args[0]], dnnl.queried(made, Query.SRC))),
            (Arg.WEIGHTS, a.in_layout(a.values[node.args[1]], dnnl.queried(made, Query.WEIGHTS))),
        ]

    layouts = a.layouts(node.args[0])
    a.build(node, create, operands, [(desc, to) for desc in layouts for to in (desc, free)])


def _reduction(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, source = a.dnnl, a.dense(node.args[0])
    algorithm = REDUCTION[node.text("algorithm")]
    free = dnnl.any_layout(a.shapes[node.result])
    plain = dnnl.plain(a.shapes[node.args[0]])

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "reduction_primitive_desc_create",
            *(dnnl.engine, algorithm, *candidate, 0.0, 0.0, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [(Arg.SRC, a.in_layout(a.values[node.args[0]], dnnl.queried(made, Query.SRC)))]

    a.build(node, create, operands, [(source.desc, free), (plain, free)])


def _resampling(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, free = a.dnnl, a.free(node.result)
    algorithm = RESAMPLING[node.text("algorithm")]
    sizes = zip(a.shapes[node.result][2:], a.shapes[node.args[0]][2:], strict=True)
    scales = [to / of for to, of in sizes]
    factors = (ctypes.c_float * len(scales))(*scales)

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "resampling_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, algorithm),
            *(factors, candidate[0], free, attribute),
        )

    _in_any_layout(a, node, create)


def _concat(a: Assembly, node: PrimitiveNode) -> None:
    dnnl, count, axis = a.dnnl, len(node.args), node.integer("axis")
    tensors = [a.dense(value) for value in node.args]
    plains = [a.row_major(value) for value in node.args]
    free = a.free(node.result)

    def create(candidate: tuple[int, ...], attribute: int) -> int | None:
        layouts = (ctypes.c_void_p * count)(*candidate[1:])
        return dnnl.try_make(
            "concat_primitive_desc_create",
            *(dnnl.engine, candidate[0], count, axis, layouts, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        return [
            (
                Arg.MULTIPLE_SRC + index,
                a.in_layout(a.values[value], dnnl.queried(made, Query.SRC, index)),
            )
            for index, value in enumerate(node.args)
        ]

    candidates: list[tuple[int, ...]] = [
        (free, *(tensor.desc for tensor in tensors)),
        (free, *plains),
    ]
    if all(a.shapes[value][axis] == 1 for value in node.args):
        # Any other layout would have the library write single elements, 100 times slower.
        candidates.insert(
            0, tuple(_outermost(a, value, axis) for value in (node.result, *node.args))
        )
    a.build(node, create, operands, candidates)


def _outermost(a: Assembly, value: int, axis: int) -> int:
    """Describe a dense layout in which ``axis`` moves slowest."""
    shape = a.shapes[value]
    order = [axis, *(place for place in range(len(shape)) if place != axis)]
    dense = a.dnnl.plain([shape[place] for place in order], a.dtypes[value])
    return a.dnnl.permuted(dense, order)


def _view(a: Assembly, node: PrimitiveNode) -> None:
    value = node.args[0]
    tensor = a.values[value]
    desc = _seen(a, node, tensor.desc)
    if desc is None:
        tensor = a.plain(value)
        desc = _seen(a, node, tensor.desc)
    if desc is None:
        raise ArtifactError(f"the region has a malformed {node.kind}", where=node.label)
    desc = a.canonical(node.result, desc)
    a.values[node.result] = MemoryTensor(desc, tensor.buffer, tensor.offset)


def _seen(a: Assembly, node: PrimitiveNode, desc: int) -> int | None:
    if node.kind == "reshape":
        return a.dnnl.reshaped(desc, a.shapes[node.result])
    moves = [0] * len(node.ints("axes"))
    for to, of in enumerate(node.ints("axes")):
        moves[of] = to
    return a.dnnl.permuted(desc, moves)


def _slice(a: Assembly, node: PrimitiveNode) -> None:
    value, begin, shape = node.args[0], node.ints("begin"), a.shapes[node.result]
    within = zip(begin, shape, a.shapes[value], strict=True)
    if any(first < 0 or first + size > whole for first, size, whole in within):
        raise ArtifactError("the region has a malformed slice", where=node.label)
    if a.values[value].buffer.home is Home.ARGUMENT:
        part = a.dnnl.sliced(a.values[value].desc, shape, begin)
        part_of_argument = MemoryTensor(part, a.values[value].buffer)
        a.values[node.result] = a.in_layout(part_of_argument, a.row_major(node.result))
        return
    tensor = a.values[value]
    strides = a.dnnl.strides(tensor.desc, len(shape))
    if strides is None:  # blocked
        tensor = a.plain(value)
        strides = a.dnnl.strides(tensor.desc, len(shape)) or ()
    skipped = sum(first * stride for first, stride in zip(begin, strides, strict=True))
    desc = a.dnnl.strided(shape, strides, a.dtypes[value])
    size = BYTES[a.dtypes[value]]
    a.values[node.result] = MemoryTensor(desc, tensor.buffer, tensor.offset + size * skipped)


_BUILDERS: Mapping[str, Callable[[Assembly, PrimitiveNode], None]] = MappingProxyType(
    {
        "conv": _convolution,
        "deconv": _convolution,
        "matmul": _matmul,
        "eltwise": _eltwise,
        "binary": _binary,
        "pool": _pooling,
        "softmax": _softmax,
        "layer_norm": _layer_norm,
        "batch_norm": _batch_norm,
        "lrn": _lrn,
        "prelu": _prelu,
        "reduction": _reduction,
        "resampling": _resampling,
        "concat": _concat,
        "reshape": _view,
        "transpose": _view,
        "slice": _slice,
        **QUANTIZED,
    }
)
