# SPDX-License-Identifier: Apache-2.0
"""Random numbers: functions of bits that a key, the number of the run and a place decide.

A node with ``seed`` draws the same in each process, but other numbers than ONNX Runtime, as that
does than other runtimes; a node without one draws what nobody can foretell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.types import Size
from intarsia_ir.ops import binary, compare, unary
from intarsia_ir.ops.mersenne import MersenneWords
from intarsia_ir.ops.random import RandomBits
from intarsia_ir.ops.reduce import Argmax
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext

_SINGLE, _DOUBLE = 24, 53
"""Bits of a significand."""
_WIDE = DType.FLOAT64
_APART = 0x9E3779B1
"""What iterations of an outer loop are apart for an inner one: a prime near the golden section of
2**32, so that numbers of some ten thousand iterations of both differ."""


def random_uniform(node: NodeContext) -> Expr:
    """Convert RandomUniform."""
    return _between(node, node.integers("shape"), _dtype(node, DType.FLOAT32))


def random_uniform_like(node: NodeContext) -> Expr:
    """Convert RandomUniformLike."""
    x = node.input(0)
    return _between(node, sizes_of(x), _dtype(node, dtype_of(x)))


def random_normal(node: NodeContext) -> Expr:
    """Convert RandomNormal."""
    return _around(node, node.integers("shape"), _dtype(node, DType.FLOAT32))


def random_normal_like(node: NodeContext) -> Expr:
    """Convert RandomNormalLike."""
    x = node.input(0)
    return _around(node, sizes_of(x), _dtype(node, dtype_of(x)))


def bernoulli(node: NodeContext) -> Expr:
    """Convert Bernoulli: 1 where a number below 1 is below the element."""
    x = node.input(0)
    kind = DType.FLOAT64 if dtype_of(x) is DType.FLOAT64 else DType.FLOAT32
    (drawn,) = _fractions(node, sizes_of(x), kind, 1)
    is_one = node.call(compare.Less, drawn, node.cast(x, kind))
    return node.cast(is_one, _dtype(node, dtype_of(x)))


def multinomial(node: NodeContext) -> Expr:
    """Convert Multinomial: the class whose logarithm is largest, each plus Gumbel noise.

    The largest of ``log(weight) - log(-log(u))`` is a class with the probability of its weight.
    """
    x, count = node.input(0), node.integer("sample_size", 1)
    if rank_of(x) != 2 or sizes_of(x)[1] == 0:
        raise node.model_error(f"needs rows of at least one class, got {node.type_of(0)}")
    rows, classes = sizes_of(x)
    (drawn,) = _fractions(node, (rows, count, classes), DType.FLOAT32, 1, above=True)
    minus = node.scalar(0.0, DType.FLOAT32)
    for _ in range(2):
        drawn = node.call(binary.Subtract, minus, node.call(unary.Log, drawn))
    logs = node.reshape(node.cast(x, DType.FLOAT32), (rows, 1, classes))
    found = node.call(
        Argmax, node.call(binary.Add, logs, drawn), attrs=Argmax.Attrs(axis=2, keepdims=False)
    )
    return node.cast(found, _dtype(node, DType.INT32))


def dropped(node: NodeContext, x: Expr, ratio: Expr) -> tuple[Expr, Expr]:
    """Return elements with a part of them set to 0 and the rest scaled up, and which were kept.

    With a seed, the first run draws what ONNX's reference does of it.
    """
    kind = DType.FLOAT64 if dtype_of(x) is DType.FLOAT64 else DType.FLOAT32
    if node.has("seed"):
        kind, drawn = DType.FLOAT64, _seeded_fractions(node, sizes_of(x))
    else:
        (drawn,) = _fractions(node, sizes_of(x), kind, 1)
    part = node.reshape(node.cast(ratio, kind), ())
    is_kept = node.call(compare.GreaterEqual, drawn, part)
    rest = node.call(binary.Subtract, node.scalar(1.0, kind), part)
    scaled = node.cast(node.call(binary.Divide, node.cast(x, kind), rest), dtype_of(x))
    return node.call(compare.Where, is_kept, scaled, node.scalar(0, dtype_of(x))), is_kept


def _dtype(node: NodeContext, default: DType) -> DType:
    """Return the element type of the result."""
    return node.element_type("dtype") if node.has("dtype") else default


def _between(node: NodeContext, shape: Sequence[Size], dtype: DType) -> Expr:
    """Return numbers between ``low`` and ``high``, all equally likely."""
    kind = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    (drawn,) = _fractions(node, shape, kind, 1)
    return node.cast(_scaled(node, drawn, high - low, low, kind), dtype)


def _around(node: NodeContext, shape: Sequence[Size], dtype: DType) -> Expr:
    """Return numbers of a normal distribution (Box and Muller, 1958)."""
    kind = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    mean, scale = node.number("mean", 0.0), node.number("scale", 1.0)
    distance, angle = _fractions(node, shape, kind, 2, above=True)
    logs = node.call(binary.Multiply, node.call(unary.Log, distance), node.scalar(-2.0, kind))
    turned = node.call(binary.Multiply, angle, node.scalar(2 * math.pi, kind))
    radius = node.call(unary.Sqrt, logs)
    drawn = node.call(binary.Multiply, radius, node.call(unary.Cos, turned))
    return node.cast(_scaled(node, drawn, scale, mean, kind), dtype)


def _scaled(node: NodeContext, x: Expr, factor: float, shift: float, kind: DType) -> Expr:
    if factor != 1.0:
        x = node.call(binary.Multiply, x, node.scalar(factor, kind))
    return x if shift == 0.0 else node.call(binary.Add, x, node.scalar(shift, kind))


def _fractions(
    node: NodeContext, shape: Sequence[Size], kind: DType, count: int, *, above: bool = False
) -> list[Expr]:
    """Return ``count`` tensors of numbers in ``[0, 1)``; in ``(0, 1]`` if ``above``."""
    state, stream = _stream(node)
    key = _key(node)
    words = 2 if kind is DType.FLOAT64 else 1
    bits = _DOUBLE if kind is DType.FLOAT64 else _SINGLE

    def lane(number: int) -> Expr:
        attrs = RandomBits.Attrs(shape=extents(shape), stream=stream, lane=number, key=key)
        return node.call(RandomBits, state, attrs=attrs)

    found: list[Expr] = []
    for number in range(count):
        drawn = lane(number * words)
        if words == 2:
            high = node.cast(drawn, DType.UINT64)
            high = node.call(binary.LeftShift, high, node.scalar(32, DType.UINT64))
            low = node.cast(lane(number * words + 1), DType.UINT64)
            drawn = node.call(binary.BitwiseOr, high, low)
        unused = node.scalar(32 * words - bits, dtype_of(drawn))
        drawn = node.call(binary.RightShift, drawn, unused)
        if above:
            drawn = node.call(binary.Add, drawn, node.scalar(1, dtype_of(drawn)))
        real = node.cast(drawn, kind)
        found.append(node.call(binary.Multiply, real, node.scalar(2.0**-bits, kind)))
    return found


def _seeded_fractions(node: NodeContext, shape: Sequence[Size]) -> Expr:
    """Return float64 numbers in ``[0, 1)`` of 53 bits, as NumPy's ``RandomState`` draws them."""
    state, _ = _stream(node)
    (count,) = extents((product(shape),))
    attrs = MersenneWords.Attrs(count=2 * count, seed=node.integer("seed") & 0xFFFFFFFF)
    words = node.reshape(node.call(MersenneWords, state, attrs=attrs), (count, 2))
    high, low = (
        node.cast(node.call(binary.RightShift, word, node.scalar(unused, DType.UINT32)), _WIDE)
        for word, unused in ((node.item(words, 1, 0), 5), (node.item(words, 1, 1), 6))
    )
    whole = node.call(binary.Multiply, high, node.scalar(2.0**26, _WIDE))
    drawn = node.call(binary.Add, whole, low)
    return node.reshape(node.call(binary.Multiply, drawn, node.scalar(2.0**-_DOUBLE, _WIDE)), shape)


def _stream(node: NodeContext) -> tuple[Expr, int]:
    """Return the state of the run and the number of a stream of draws.

    In a loop the state has a third number, which is another one in each iteration.

    Raises:
        UnsupportedError: The node is between nodes on the host.
    """
    draws = node.folder.draws
    if draws is None:
        raise node.unsupported("random numbers between nodes on the host")
    state, stream = draws.stream()
    number: Expr | None = None
    for iteration in draws.iterations:
        assert iteration is not None  # loops with draws have one
        if number is not None:
            outer = node.call(binary.Multiply, number, node.scalar(_APART, DType.INT64))
            iteration = node.call(binary.Add, outer, iteration)
        number = iteration
    if number is None:
        return state, stream
    return node.concat([state, node.reshape(number, (1,))], 0), stream


def _key(node: NodeContext) -> int:
    """Return what ``seed`` says; -1 if there is none."""
    return int(np.float32(node.number("seed")).view(np.uint32)) if node.has("seed") else -1


CONVERTERS = MappingProxyType(
    {
        "Bernoulli": bernoulli,
        "Multinomial": multinomial,
        "RandomNormal": random_normal,
        "RandomNormalLike": random_normal_like,
        "RandomUniform": random_uniform,
        "RandomUniformLike": random_uniform_like,
    }
)
