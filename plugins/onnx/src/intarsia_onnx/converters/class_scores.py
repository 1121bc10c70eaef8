# SPDX-License-Identifier: Apache-2.0
"""What classifiers of the domain ``ai.onnx.ml`` share: labels and the transform of their scores."""

from __future__ import annotations

import math

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, indexing, reduce, softmax, unary
from intarsia_runtime.dtype import DType

from ..builder import rank_of, sizes_of
from ..context import NodeContext

_NEAR_ZERO = 1e-7
"""A score at most this far from 0 counts as 0 where ``SOFTMAX_ZERO`` leaves zeros out."""

_BEND = 0.147
"""Parameter of Winitzki's approximation of the inverse error function, in ``PROBIT``."""


def feature_rows(node: NodeContext) -> Expr:
    """Return the features in single precision: ``[N, C]``, of a vector as one row."""
    x = node.cast(node.input(0), DType.FLOAT32)
    if rank_of(x) == 1:
        return node.reshape(x, (1, *node.type_of(0).shape))
    if rank_of(x) != 2:
        raise node.unsupported(f"{node.op_type} of {node.type_of(0)}")
    return x


def attribute_array(node: NodeContext, name: str) -> np.ndarray:
    """Return a list of floats as an array; empty if the attribute is not set."""
    return np.array(node.numbers(name) if node.has(name) else (), np.float32)


def label_array(node: NodeContext) -> np.ndarray:
    """Return the labels of classes; for labels that are text, the numbers of the classes."""
    return np.array(
        node.integers(
            "classlabels_int64s" if node.has("classlabels_int64s") else "classlabels_ints"
        ),
        np.int64,
    )


def best_label(node: NodeContext, scores: Expr, labels: np.ndarray) -> Expr:
    """Return the label of the largest score in each row."""
    attrs = reduce.Argmax.Attrs(axis=1, keepdims=False)
    best = node.call(reduce.Argmax, scores, attrs=attrs)
    return node.call(indexing.Take, node.array(labels), best, attrs=indexing.Take.Attrs(axis=0))


def transformed(node: NodeContext, scores: Expr, transform: str) -> Expr:
    """Return what ``post_transform`` makes of scores ``[N, targets]``."""
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return node.call(softmax.Softmax, scores, attrs=softmax.Softmax.Attrs(axis=1))
        case "LOGISTIC":
            return node.call(unary.Sigmoid, scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(node, scores)
        case "PROBIT":
            return _probit(node, scores)
        case _:
            raise node.model_error(f"post_transform='{transform}' is not defined")


def two_scores(node: NodeContext, score: Expr, transform: str, *, is_probability: bool) -> Expr:
    """Return the scores of two classes, ``[N, 2]``, from that of the second, ``[N, 1]``.

    ``LOGISTIC`` alone transforms it. Otherwise the first class has the rest to 1, or if the
    score is no probability its negative.

    Raises:
        UnsupportedError: The transform is ``PROBIT``, of which ONNX Runtime writes one score.
    """
    if transform == "PROBIT":
        raise node.never_supported(f"{node.op_type} of one score with post_transform=PROBIT")
    is_left = is_probability and transform != "LOGISTIC"
    most = node.scalar(1.0 if is_left else 0.0, DType.FLOAT32)
    pair = node.concat([node.call(binary.Subtract, most, score), score], 1)
    return transformed(node, pair, transform) if transform == "LOGISTIC" else pair


def transformed_targets(node: NodeContext, scores: Expr, transform: str) -> Expr:
    """Return what ``post_transform`` makes of the results of a regressor: ``[N, targets]``.

    Raises:
        UnsupportedError: There is one target, which ONNX's text transforms and ONNX Runtime does
            not, but for ``PROBIT``.
    """
    if transform not in ("NONE", "PROBIT") and sizes_of(scores)[1] == 1:
        raise node.never_supported(
            f"{node.op_type} of one target with post_transform={transform}, which ONNX Runtime"
            " does not carry out",
            "write it as a node of its own, e.g. Sigmoid for LOGISTIC",
        )
    return transformed(node, scores, transform)


def _softmax_zero(node: NodeContext, scores: Expr) -> Expr:
    """Return the softmax of scores that are not 0; those that are get nothing of it."""
    kind = DType.FLOAT32
    highest = node.call(reduce.Max, scores, attrs=reduce.Max.Attrs(axes=(1,), keepdims=True))
    grown = node.call(unary.Exp, node.call(binary.Subtract, scores, highest))
    size = node.call(unary.Abs, scores)
    is_set = node.call(compare.Greater, size, node.scalar(_NEAR_ZERO, kind))
    grown = node.call(compare.Where, is_set, grown, node.scalar(0.0, kind))
    total = node.call(reduce.Sum, grown, attrs=reduce.Sum.Attrs(axes=(1,), keepdims=True))
    return node.call(binary.Divide, grown, total)


def _probit(node: NodeContext, scores: Expr) -> Expr:
    """Return the quantile of the normal distribution: ``sqrt(2) * erfinv(2 * scores - 1)``."""
    kind = DType.FLOAT32

    def number(value: float) -> Expr:
        return node.scalar(value, kind)

    def product(a: Expr, b: Expr) -> Expr:
        return node.call(binary.Multiply, a, b)

    x = node.call(binary.Subtract, product(scores, number(2.0)), number(1.0))
    inside = product(
        node.call(binary.Subtract, number(1.0), x), node.call(binary.Add, number(1.0), x)
    )
    log = node.call(unary.Log, inside)
    half = node.call(binary.Add, number(2 / (math.pi * _BEND)), product(log, number(0.5)))
    root = node.call(
        unary.Sqrt,
        node.call(binary.Subtract, product(half, half), product(log, number(1 / _BEND))),
    )
    size = node.call(unary.Sqrt, node.call(binary.Subtract, root, half))
    size = product(size, number(math.sqrt(2)))
    is_low = node.call(compare.Less, x, number(0.0))
    return node.call(compare.Where, is_low, node.call(unary.Negative, size), size)
