# SPDX-License-Identifier: Apache-2.0
"""Linear models and scalers, of the domain ``ai.onnx.ml``."""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, nn, reduce, unary
from intarsia_runtime.dtype import DType

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


def scaler(node: NodeContext) -> Expr:
    """Convert Scaler: ``(x - offset) * scale``, for each feature or for all."""
    x = node.cast(node.input(0), DType.FLOAT32)
    offset, scale = attribute_array(node, "offset"), attribute_array(node, "scale")
    if not len(offset) or len(offset) != len(scale):
        raise node.model_error(f"{len(offset)} offsets and {len(scale)} scales are given")
    return node.call(
        binary.Multiply, node.call(binary.Subtract, x, node.array(offset)), node.array(scale)
    )


def normalizer(node: NodeContext) -> Expr:
    """Convert Normalizer: each row divided by its norm; a row whose norm is 0 stays."""
    x, norm = feature_rows(node), node.string("norm", "MAX")
    attrs = reduce.Sum.Attrs(axes=(1,), keepdims=True)
    match norm:
        case "MAX":
            divisor = node.call(reduce.Max, x, attrs=attrs)
        case "L1":
            divisor = node.call(reduce.Sum, node.call(unary.Abs, x), attrs=attrs)
        case "L2":
            squares = node.call(binary.Multiply, x, x)
            divisor = node.call(unary.Sqrt, node.call(reduce.Sum, squares, attrs=attrs))
        case _:
            raise node.model_error(f"norm='{norm}' is not defined")
    is_zero = node.call(compare.Equal, divisor, node.scalar(0.0, DType.FLOAT32))
    divisor = node.call(compare.Where, is_zero, node.scalar(1.0, DType.FLOAT32), divisor)
    return node.call(binary.Divide, x, divisor)


def _linear(node: NodeContext, targets: int) -> Expr:
    """Return ``x * coefficients' + intercepts``: ``[N, targets]``."""
    x, weights = feature_rows(node), attribute_array(node, "coefficients")
    if targets < 1 or len(weights) % targets:
        raise node.model_error(f"{len(weights)} coefficients are given for {targets} results")
    columns = node.array(weights.reshape(targets, -1).T.copy())
    scores = node.call(nn.Matmul, x, columns)
    intercepts = attribute_array(node, "intercepts")
    if not len(intercepts):
        return scores
    return node.call(binary.Add, scores, node.array(intercepts))


def linear_regressor(node: NodeContext) -> Expr:
    """Convert LinearRegressor."""
    scores = _linear(node, node.integer("targets", 1))
    return transformed_targets(node, scores, node.string("post_transform", "NONE"))


def linear_classifier(node: NodeContext) -> tuple[Expr, Expr]:
    """Convert LinearClassifier: the label with the largest score, and all scores.

    Of two classes a model may score the second one alone; the first one gets the rest to 1.
    """
    labels, transform = label_array(node), node.string("post_transform", "NONE")
    targets = len(node.numbers("intercepts")) if node.has("intercepts") else len(labels)
    if not 0 < targets <= len(labels) or (targets == 1 and len(labels) != 2):
        raise node.model_error(f"{targets} scores are given for {len(labels)} labels")
    scores = _linear(node, targets)
    if targets > 1:
        return best_label(node, scores, labels), transformed(node, scores, transform)
    above = node.call(compare.Greater, scores, node.scalar(0.0, DType.FLOAT32))
    label = node.call(compare.Where, node.item(above, 1, 0), *map(node.array, labels[::-1]))
    return label, two_scores(node, scores, transform, is_probability=True)


CONVERTERS = MappingProxyType(
    {
        "ai.onnx.ml::LinearClassifier": linear_classifier,
        "ai.onnx.ml::LinearRegressor": linear_regressor,
        "ai.onnx.ml::Normalizer": normalizer,
        "ai.onnx.ml::Scaler": scaler,
    }
)
