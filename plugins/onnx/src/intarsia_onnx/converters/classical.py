# SPDX-License-Identifier: Apache-2.0
"""Linear models, support vector machines and scalers, of the domain ``ai.onnx.ml``."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, nn, reduce, unary
from intarsia_runtime.dtype import DType

from ..builder import rank_of
from ..context import NodeContext
from .class_scores import best_label, label_array, transformed


def _rows(node: NodeContext) -> Expr:
    """Return the features in single precision: ``[N, C]``, of a vector as one row."""
    x = node.cast(node.input(0), DType.FLOAT32)
    if rank_of(x) == 1:
        return node.reshape(x, (1, *node.type_of(0).shape))
    if rank_of(x) != 2:
        raise node.unsupported(f"{node.op_type} of {node.type_of(0)}")
    return x


def _numbers(node: NodeContext, name: str) -> np.ndarray:
    return np.array(node.numbers(name) if node.has(name) else (), np.float32)


def scaler(node: NodeContext) -> Expr:
    """Convert Scaler: ``(x - offset) * scale``, for each feature or for all."""
    x = node.cast(node.input(0), DType.FLOAT32)
    offset, scale = _numbers(node, "offset"), _numbers(node, "scale")
    if not len(offset) or len(offset) != len(scale):
        raise node.model_error(f"{len(offset)} offsets and {len(scale)} scales are given")
    return node.call(
        binary.Multiply, node.call(binary.Subtract, x, node.array(offset)), node.array(scale)
    )


def normalizer(node: NodeContext) -> Expr:
    """Convert Normalizer: each row divided by its norm; a row whose norm is 0 stays."""
    x, norm = _rows(node), node.string("norm", "MAX")
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
    x, weights = _rows(node), _numbers(node, "coefficients")
    if targets < 1 or len(weights) % targets:
        raise node.model_error(f"{len(weights)} coefficients are given for {targets} results")
    columns = node.array(weights.reshape(targets, -1).T.copy())
    scores = node.call(nn.Matmul, x, columns)
    intercepts = _numbers(node, "intercepts")
    if not len(intercepts):
        return scores
    return node.call(binary.Add, scores, node.array(intercepts))


def linear_regressor(node: NodeContext) -> Expr:
    """Convert LinearRegressor."""
    scores = _linear(node, node.integer("targets", 1))
    return transformed(node, scores, node.string("post_transform", "NONE"))


def linear_classifier(node: NodeContext) -> tuple[Expr, Expr]:
    """Convert LinearClassifier: the label with the largest score, and all scores."""
    labels = label_array(node)
    targets = len(node.numbers("intercepts")) if node.has("intercepts") else len(labels)
    if targets != len(labels) or targets < 2:
        raise node.unsupported(f"{node.op_type} with {targets} scores for {len(labels)} labels")
    scores = _linear(node, targets)
    scored = transformed(node, scores, node.string("post_transform", "NONE"))
    return best_label(node, scores, labels), scored


def svm_regressor(node: NodeContext) -> Expr:
    """Convert SVMRegressor: a sum of kernels over support vectors, or a linear model."""
    x, rho = _rows(node), node.array(_numbers(node, "rho")[:1])
    count, weights = node.integer("n_supports", 0), _numbers(node, "coefficients")
    if count:
        vectors = _numbers(node, "support_vectors").reshape(count, -1)
        x = _kernel(node, x, vectors)
    if not len(weights):
        raise node.model_error("no coefficients are given")
    scores = node.call(binary.Add, node.call(nn.Matmul, x, node.array(weights[:, None])), rho)
    if node.integer("one_class", 0):
        zero, one = (node.scalar(value, DType.FLOAT32) for value in (0.0, 1.0))
        inside = node.call(compare.Greater, scores, zero)
        return node.call(compare.Where, inside, one, node.call(unary.Negative, one))
    return transformed(node, scores, node.string("post_transform", "NONE"))


def _kernel(node: NodeContext, x: Expr, vectors: np.ndarray) -> Expr:
    """Return the kernel of every row with every support vector: ``[N, vectors]``."""
    kind = node.string("kernel_type", "LINEAR")
    gamma, constant, degree = (*_numbers(node, "kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        row = node.reshape(x, (node.type_of(0).shape[0], 1, vectors.shape[1]))
        apart = node.call(binary.Subtract, row, node.array(vectors[None]))
        squares = node.call(binary.Multiply, apart, apart)
        attrs = reduce.Sum.Attrs(axes=(2,), keepdims=False)
        total = node.call(reduce.Sum, squares, attrs=attrs)
        return node.call(unary.Exp, _times(node, total, -gamma))
    product = node.call(nn.Matmul, x, node.array(vectors.T.copy()))
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
        "ai.onnx.ml::LinearClassifier": linear_classifier,
        "ai.onnx.ml::LinearRegressor": linear_regressor,
        "ai.onnx.ml::Normalizer": normalizer,
        "ai.onnx.ml::SVMRegressor": svm_regressor,
        "ai.onnx.ml::Scaler": scaler,
    }
)
