# SPDX-License-Identifier: Apache-2.0
"""Support vector machines, of the domain ``ai.onnx.ml``."""

from __future__ import annotations

from itertools import combinations
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, indexing, nn, reduce, unary
from intarsia_ir.ops.coupling import PairwiseCoupling
from intarsia_runtime.dtype import DType

from ..builder import sizes_of
from ..context import NodeContext
from .class_scores import (
    attribute_array,
    best_label,
    feature_rows,
    label_array,
    transformed,
    transformed_targets,
    two_scores,
)

_LEAST = float(np.float32(1e-7))
"""No class is less probable than this beside another one."""


class _Pairs(Struct, frozen=True):
    """Classes two by two, as numbers of classes: the first of each pair, and the second."""

    classes: int

    @property
    def all(self) -> list[tuple[int, int]]:
        """Every pair, in the order in which a model lists their scores."""
        return list(combinations(range(self.classes), 2))

    def votes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which class a score above 0 votes for, and one that is not: ``[pairs, classes]``.

        The second result is how many votes each class has if no score is above 0.
        """
        first, second = (np.zeros((len(self.all), self.classes), np.float32) for _ in range(2))
        for number, (one, other) in enumerate(self.all):
            first[number, one], second[number, other] = 1, 1
        return first - second, second.sum(0)


def svm_regressor(node: NodeContext) -> Expr:
    """Convert SVMRegressor: a sum of kernels over support vectors, or a linear model."""
    x, rho = feature_rows(node), attribute_array(node, "rho")[:1]
    count, weights = node.integer("n_supports", 0), attribute_array(node, "coefficients")
    if count:
        support = attribute_array(node, "support_vectors").reshape(count, -1)
        x = _kernel(node, x, support)
    if not len(weights):
        raise node.model_error("no coefficients are given")
    scores = _weighted(node, x, weights[:, None], rho)
    if node.integer("one_class", 0):
        zero, one = (node.scalar(value, DType.FLOAT32) for value in (0.0, 1.0))
        inside = node.call(compare.Greater, scores, zero)
        return node.call(compare.Where, inside, one, node.call(unary.Negative, one))
    transform = node.string("post_transform", "NONE")
    if transform == "PROBIT":
        raise node.never_supported(f"{node.op_type} with post_transform=PROBIT")
    return transformed_targets(node, scores, transform)


def svm_classifier(node: NodeContext) -> tuple[Expr, Expr]:
    """Convert SVMClassifier: a score for each pair of classes, or for each class if it is linear.

    With ``prob_a`` and ``prob_b`` the scores of pairs become probabilities of classes.
    """
    labels, transform = label_array(node), node.string("post_transform", "NONE")
    supports = np.array(node.integers("vectors_per_class", ()), np.int64)
    if not supports.sum():
        return _linear_scores(node, labels, transform)
    pairs = _Pairs(len(labels))
    if len(supports) != len(labels) or len(labels) < 2:
        raise node.model_error(f"vectors of {len(supports)} classes for {len(labels)} labels")
    scores = _pair_scores(node, supports, pairs)
    above = node.call(compare.Greater, scores, node.scalar(0.0, DType.FLOAT32))
    moved, least = pairs.votes()
    product = node.call(nn.Matmul, node.cast(above, DType.FLOAT32), node.array(moved))
    votes = node.call(binary.Add, product, node.array(least))
    label = best_label(node, votes, labels)
    if node.has("prob_a") and node.numbers("prob_a"):
        return label, transformed(node, _probabilities(node, scores, pairs), transform)
    if len(labels) > 2:
        return label, transformed(node, scores, transform)
    return label, two_scores(node, scores, transform, is_probability=transform != "NONE")


def _linear_scores(node: NodeContext, labels: np.ndarray, transform: str) -> tuple[Expr, Expr]:
    """Return label and scores of a linear model, which has one row of coefficients a class."""
    x, weights = feature_rows(node), attribute_array(node, "coefficients")
    rho = attribute_array(node, "rho")
    if len(labels) < 2 or len(weights) % len(labels) or not len(weights) or not len(rho):
        raise node.model_error(
            f"{len(weights)} coefficients and {len(rho)} of rho for {len(labels)} labels"
        )
    columns = node.array(weights.reshape(len(labels), -1).T.copy())
    scores = node.call(binary.Add, node.call(nn.Matmul, x, columns), node.array(rho[:1]))
    scored = transformed(node, scores, transform)
    label = best_label(node, scores, labels)
    if len(labels) > 2 or node.numbers("prob_a"):
        return label, scored
    attrs = reduce.Max.Attrs(axes=(1,), keepdims=False)
    highest = node.call(reduce.Max, scores, attrs=attrs)
    if (weights >= 0).all():
        second = node.call(compare.GreaterEqual, highest, node.scalar(0.5, DType.FLOAT32))
    else:
        second = node.call(compare.Greater, highest, node.scalar(0.0, DType.FLOAT32))
    return node.call(compare.Where, second, node.array(labels[1]), label), scored


def _pair_scores(node: NodeContext, supports: np.ndarray, pairs: _Pairs) -> Expr:
    """Return the score of each pair, ``[N, pairs]``: above 0 if the row is of the first class."""
    total, count = int(supports.sum()), len(pairs.all)
    weights, rho = attribute_array(node, "coefficients"), attribute_array(node, "rho")
    support = attribute_array(node, "support_vectors")
    fits = len(weights) >= (pairs.classes - 1) * total and len(rho) >= count
    if not fits or len(support) % total or not len(support):
        raise node.model_error(
            f"{len(weights)} coefficients, {len(rho)} of rho and {len(support)} elements of"
            f" support vectors for {pairs.classes} classes and {total} support vectors"
        )
    rows = weights[: (pairs.classes - 1) * total].reshape(-1, total)
    ends = np.cumsum(supports)
    columns = np.zeros((total, count), np.float32)
    for number, (one, other) in enumerate(pairs.all):
        for own, row in ((one, other - 1), (other, one)):
            own_rows = slice(ends[own] - supports[own], ends[own])
            columns[own_rows, number] = rows[row, own_rows]
    kernel = _kernel(node, feature_rows(node), support.reshape(total, -1))
    return _weighted(node, kernel, columns, rho[:count])


def _weighted(node: NodeContext, kernel: Expr, columns: np.ndarray, rho: np.ndarray) -> Expr:
    """Return ``kernel * columns + rho``.

    Coefficients of thousands cancel each other, which in single precision leaves too few digits.
    """
    wide = node.cast(kernel, DType.FLOAT64)
    product = node.call(nn.Matmul, wide, node.array(columns.astype(np.float64)))
    summed = node.call(binary.Add, product, node.array(rho.astype(np.float64)))
    return node.cast(summed, DType.FLOAT32)


def _probabilities(node: NodeContext, scores: Expr, pairs: _Pairs) -> Expr:
    """Return the probability of each class from the scores of pairs: ``[N, classes]``."""
    steep, shift = attribute_array(node, "prob_a"), attribute_array(node, "prob_b")
    count, classes = len(pairs.all), pairs.classes
    if min(len(steep), len(shift)) < count:
        raise node.model_error(
            f"{len(steep)} and {len(shift)} parameters of probabilities for {count} pairs"
        )
    scaled = node.call(binary.Multiply, scores, node.array(steep[:count]))
    shifted = node.call(binary.Add, scaled, node.array(shift[:count]))
    kind = DType.FLOAT32
    one, least = node.scalar(1.0, kind), node.scalar(_LEAST, kind)
    first = node.call(binary.Subtract, one, node.call(unary.Sigmoid, shifted))
    first = node.call(binary.Maximum, first, least)
    first = node.call(binary.Minimum, first, node.call(binary.Subtract, one, least))
    both = node.concat([first, node.call(binary.Subtract, one, first)], 1)
    places = np.zeros((classes, classes), np.int64)
    for number, (row, column) in enumerate(pairs.all):
        places[row, column], places[column, row] = number, count + number
    rows = sizes_of(scores)[0]
    attrs = indexing.Take.Attrs(axis=1)
    table = node.call(indexing.Take, both, node.array(places.reshape(-1)), attrs=attrs)
    table = node.reshape(table, (rows, classes, classes))
    return node.call(PairwiseCoupling, table)


def _kernel(node: NodeContext, x: Expr, support: np.ndarray) -> Expr:
    """Return the kernel of every row with every support vector: ``[N, vectors]``."""
    kind = node.string("kernel_type", "LINEAR")
    gamma, constant, degree = (*attribute_array(node, "kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        row = node.reshape(x, (sizes_of(x)[0], 1, support.shape[1]))
        apart = node.call(binary.Subtract, row, node.array(support[None]))
        squares = node.call(binary.Multiply, apart, apart)
        attrs = reduce.Sum.Attrs(axes=(2,), keepdims=False)
        total = node.call(reduce.Sum, squares, attrs=attrs)
        return node.call(unary.Exp, _times(node, total, -gamma))
    product = node.call(nn.Matmul, x, node.array(support.T.copy()))
    if kind == "LINEAR":
        return product
    shifted = node.call(
        binary.Add, _times(node, product, gamma), node.scalar(constant, DType.FLOAT32)
    )
    if kind == "POLY":
        return node.call(binary.Power, shifted, node.scalar(degree, DType.FLOAT32))
    if kind == "SIGMOID":
        return node.call(unary.Tanh, shifted)
    raise node.model_error(f"kernel_type='{kind}' is not defined")


def _times(node: NodeContext, x: Expr, factor: float) -> Expr:
    return node.call(binary.Multiply, x, node.scalar(float(factor), DType.FLOAT32))


CONVERTERS = MappingProxyType(
    {
        "ai.onnx.ml::SVMClassifier": svm_classifier,
        "ai.onnx.ml::SVMRegressor": svm_regressor,
    }
)
