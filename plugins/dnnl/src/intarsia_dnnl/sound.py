# SPDX-License-Identifier: Apache-2.0
"""What must hold of a node before the library sees it.

oneDNN checks the descriptors that it is given. It does not check what it cannot see: that a C array
has an entry for each spatial axis, that a vector of scales is as long as the axis it runs along,
that a view has the elements of what it views. There it reads past the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from .program import PrimitiveNode, PrimitiveProgram

Shape: TypeAlias = tuple[int, ...]
Rule: TypeAlias = Callable[[PrimitiveNode, Sequence[Shape], Shape], "bool"]
"""Whether the shapes of operands and result, and the attributes, go together."""

_WINDOW = ("strides", "padding_low", "padding_high")


def check_nodes(program: PrimitiveProgram) -> None:
    """Check every node of a program whose values are known to exist.

    Raises:
        ValueError: The library would read or write outside of memory; the message names the node.
        LookupError: A node lacks an attribute or an operand.
    """
    shapes, dtypes = program.shapes, program.dtypes
    for node in program.nodes:
        result = shapes[node.result]
        operands = [shapes[value] for value in node.args]
        if node.kind not in _RULES or not operands:
            raise ValueError(f"there is no node {node.kind} of {len(operands)} operands")
        if not _RULES[node.kind](node, operands, result):
            raise ValueError(f"{node.kind} '{node.label}' cannot make {result} of {operands}")
        if node.kind in _VIEWS and dtypes[node.args[0]] != dtypes[node.result]:
            raise ValueError(f"{node.kind} '{node.label}' changes the element type")
        for number in range(_first_scale(node), len(node.args)):
            if dtypes[node.args[number]] != "float32":
                raise ValueError(f"{node.kind} '{node.label}' has scales or a bias of another type")
        for op in node.post:
            if op.kind not in ("eltwise", "binary", "sum") or (op.kind != "eltwise") != (
                op.value >= 0
            ):
                raise ValueError(f"{node.kind} '{node.label}' has the post-operation {op.kind}")
            if op.kind == "eltwise":
                continue
            wrong = dtypes[op.value] != dtypes[node.result] if op.kind == "sum" else False
            if wrong or not _broadcasts(shapes[op.value], result, equal=op.kind == "sum"):
                raise ValueError(f"{node.kind} '{node.label}' cannot add {shapes[op.value]}")


_VIEWS = ("reshape", "transpose", "slice")


def _first_scale(node: PrimitiveNode) -> int:
    """Return the number of the first operand that is a vector of float32."""
    return {"convert": 1, "qadd": 2, "conv": 2, "deconv": 2, "matmul": 2}.get(
        node.kind, 2 if node.kind in ("qconv", "qdeconv", "qmatmul") else len(node.args)
    )


def _broadcasts(shape: Shape, result: Shape, *, equal: bool = False) -> bool:
    if equal:
        return shape == result
    return len(shape) == len(result) and all(
        a in (1, b) for a, b in zip(shape, result, strict=True)
    )


def _has_axes(node: PrimitiveNode, keys: Sequence[str], rank: int) -> bool:
    """Whether each list has an entry for each spatial axis, of a size that C code can add."""
    lists = [node.ints(key) for key in keys]
    return 1 <= rank - 2 <= 3 and all(
        len(numbers) == rank - 2 and all(-1 <= n < 1 << 31 for n in numbers) for numbers in lists
    )


def _same(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    return operands[0] == result


def _same_rank(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    return all(len(shape) == len(result) for shape in operands)


def _convolution(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    source, weights, *vectors = operands
    groups = node.integer("groups")
    return (
        len(source) == len(weights) == len(result)
        and _has_axes(node, ("dilation", *_WINDOW), len(source))
        and groups >= 1
        and weights[0] % groups == 0
        and len(vectors) <= (2 if node.kind.startswith("q") else 1)
        and _vectors_fit(node, vectors, result[1])
    )


def _vectors_fit(node: PrimitiveNode, vectors: Sequence[Shape], length: int) -> bool:
    """Whether scales are one number or one for each channel, and a bias one for each."""
    scales: Sequence[Shape] = vectors[:1] if node.kind.startswith("q") else []
    biases = vectors[1:] if node.kind.startswith("q") else vectors
    return all(prod(v) in (1, length) for v in scales) and all(prod(v) == length for v in biases)


def _product(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    left, right, *vectors = operands
    return (
        len(left) == len(right) == len(result) >= 2
        and len(vectors) <= (2 if node.kind.startswith("q") else 1)
        and _vectors_fit(node, vectors, result[-1])
    )


def _pool(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    keys = ("kernel", *_WINDOW, *(() if node.kind == "qmean" else ("dilation",)))
    return len(operands[0]) == len(result) and _has_axes(node, keys, len(result))


def _layer_norm(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    source, *vectors = operands
    return (
        source == result
        and len(result) >= 2
        and len(vectors) in (1, 2)
        and all(prod(vector) == result[-1] for vector in vectors)
    )


def _batch_norm(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    source, *vectors = operands
    return (
        source == result
        and len(result) >= 2
        and len(vectors) == 4
        and all(prod(vector) == result[1] for vector in vectors)
    )


def _convert(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    return operands[0] == result and len(operands) == 2 and prod(operands[1]) == 1


def _quantized_sum(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    return (
        len(operands) == 4
        and all(_broadcasts(shape, result) for shape in operands[:2])
        and all(prod(shape) == 1 for shape in operands[2:])
    )


def _resampling(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    return 3 <= len(result) <= 5 and operands[0][:2] == result[:2] and min(operands[0]) > 0


def _transpose(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    axes, shape = node.ints("axes"), operands[0]
    return sorted(axes) == list(range(len(shape))) and result == tuple(shape[a] for a in axes)


def _reshape(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    return prod(operands[0]) == prod(result)


def _slice(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    begin, shape = node.ints("begin"), operands[0]
    if not len(begin) == len(shape) == len(result):
        return False
    return all(b >= 0 and b + n <= size for b, n, size in zip(begin, result, shape, strict=True))


def _concat(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    axis = node.integer("axis")
    if not 0 <= axis < len(result) or not _same_rank(node, operands, result):
        return False
    others = [(*shape[:axis], *shape[axis + 1 :]) for shape in (result, *operands)]
    return sum(shape[axis] for shape in operands) == result[axis] and len(set(others)) == 1


def _along(node: PrimitiveNode, operands: Sequence[Shape], result: Shape) -> bool:
    axis = node.integer("axis") if node.kind == "softmax" else 1
    return operands[0] == result and 0 <= axis < len(result)


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "conv": _convolution,
        "deconv": _convolution,
        "qconv": _convolution,
        "qdeconv": _convolution,
        "matmul": _product,
        "qmatmul": _product,
        "eltwise": _same,
        "binary": _same_rank,
        "pool": _pool,
        "qmean": _pool,
        "softmax": _along,
        "lrn": _along,
        "layer_norm": _layer_norm,
        "batch_norm": _batch_norm,
        "prelu": _same_rank,
        "reduction": _same_rank,
        "resampling": _resampling,
        "concat": _concat,
        "reshape": _reshape,
        "transpose": _transpose,
        "slice": _slice,
        "convert": _convert,
        "qadd": _quantized_sum,
    }
)
