# SPDX-License-Identifier: Apache-2.0
"""Steps of training, and two operators of classical machine learning."""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, indexing, unary
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext


def _groups(node: NodeContext, width: int) -> list[list[Expr]]:
    """Sort operands after rate and count by tensor: all values, then all gradients, come first."""
    tensors = node.variadic()[2:]
    count, left = divmod(len(tensors), width)
    if left:
        raise node.model_error(f"{len(tensors)} tensors cannot be shared among groups of {width}")
    return [tensors[index::count] for index in range(count)]


def _columns(rows: list[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """Order results as operands are: all values, then all first states, and so on."""
    return tuple(item for column in zip(*rows, strict=True) for item in column)


def _times(node: NodeContext, x: Expr, factor: float | Expr) -> Expr:
    other = node.scalar(factor, dtype_of(x)) if isinstance(factor, int | float) else factor
    return node.call(binary.Multiply, node.cast(other, dtype_of(x)), x)


def _plus(node: NodeContext, a: Expr, b: Expr) -> Expr:
    return node.call(binary.Add, a, b)


def _regularized(node: NodeContext, x: Expr, gradient: Expr) -> Expr:
    return _plus(node, _times(node, x, node.number("norm_coefficient", 0.0)), gradient)


def _moved(node: NodeContext, x: Expr, rate: Expr, direction: Expr, root: Expr) -> Expr:
    """Return ``x - rate * direction / (root + epsilon)``."""
    epsilon = node.scalar(node.number("epsilon", 1e-6), dtype_of(x))
    step = node.call(binary.Divide, _times(node, direction, rate), _plus(node, root, epsilon))
    return node.call(binary.Subtract, x, step)


def adagrad(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Adagrad (Duchi et al., 2011)."""
    rate, kind = node.input(0), dtype_of(node.input(0))
    one = node.scalar(1.0, kind)
    decay = _times(node, node.cast(node.input(1), kind), node.number("decay_factor", 0.0))
    step = node.call(binary.Divide, rate, _plus(node, one, decay))
    rows: list[tuple[Expr, ...]] = []
    for x, gradient, squares in _groups(node, 3):
        g = _regularized(node, x, gradient)
        total = _plus(node, squares, _times(node, g, g))
        rows.append((_moved(node, x, step, g, node.call(unary.Sqrt, total)), total))
    return _columns(rows)


def adam(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Adam (Kingma and Ba, 2015), with regularization before and after it."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    kind = DType.FLOAT64
    turns = node.cast(node.input(1), kind)
    one, zero = node.scalar(1.0, kind), node.scalar(0.0, kind)
    left = [
        node.call(binary.Subtract, one, node.call(binary.Power, node.scalar(factor, kind), turns))
        for factor in (beta, alpha)
    ]
    rate = node.cast(node.input(0), kind)
    corrected = node.call(
        binary.Divide, _times(node, node.call(unary.Sqrt, left[0]), rate), left[1]
    )
    rate = node.call(compare.Where, node.call(compare.Greater, turns, zero), corrected, rate)
    rows: list[tuple[Expr, ...]] = []
    for x, gradient, mean, square in _groups(node, 4):
        g = _regularized(node, x, gradient)
        new_mean = _plus(node, _times(node, mean, alpha), _times(node, g, 1 - alpha))
        new_square = _plus(
            node, _times(node, square, beta), _times(node, _times(node, g, g), 1 - beta)
        )
        new = _moved(node, x, rate, new_mean, node.call(unary.Sqrt, new_square))
        after = 1 - node.number("norm_coefficient_post", 0.0)
        rows.append((_times(node, new, after), new_mean, new_square))
    return _columns(rows)


def momentum(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Momentum, standard or Nesterov's; the first step takes the gradient as it is."""
    rate, alpha = node.input(0), node.number("alpha")
    mode = node.string("mode")
    if mode not in ("nesterov", "standard"):
        raise node.model_error(f"mode='{mode}' is not defined")
    kind = dtype_of(rate)
    turns = node.cast(node.input(1), kind)
    later = node.call(compare.Greater, turns, node.scalar(0.0, kind))
    beta = node.call(
        compare.Where, later, node.scalar(node.number("beta"), kind), node.scalar(1.0, kind)
    )
    rows: list[tuple[Expr, ...]] = []
    for x, gradient, speed in _groups(node, 3):
        g = _regularized(node, x, gradient)
        new_speed = _plus(node, _times(node, speed, alpha), _times(node, g, beta))
        lookahead = _plus(node, g, _times(node, new_speed, alpha))
        direction = lookahead if mode == "nesterov" else new_speed
        new = node.call(binary.Subtract, x, _times(node, direction, rate))
        rows.append((new, new_speed))
    return _columns(rows)


def binarizer(node: NodeContext) -> Expr:
    """Convert Binarizer: 1 above the threshold, 0 elsewhere."""
    x = node.input(0)
    threshold = node.scalar(node.number("threshold", 0.0), dtype_of(x))
    return node.cast(node.call(compare.Greater, x, threshold), dtype_of(x))


def array_feature_extractor(node: NodeContext) -> Expr:
    """Convert ArrayFeatureExtractor: columns of the last dimension, of a vector as one row."""
    x, which = node.input(0), node.input(1)
    if rank_of(x) == 1:
        x = node.reshape(x, (1, *sizes_of(x)))
    index = node.reshape(which, (product(sizes_of(which)),))
    return node.call(indexing.Take, x, index, attrs=indexing.Take.Attrs(axis=rank_of(x) - 1))


CONVERTERS = MappingProxyType(
    {
        "ai.onnx.ml::ArrayFeatureExtractor": array_feature_extractor,
        "ai.onnx.ml::Binarizer": binarizer,
        "ai.onnx.preview.training::Adagrad": adagrad,
        "ai.onnx.preview.training::Adam": adam,
        "ai.onnx.preview.training::Momentum": momentum,
    }
)
