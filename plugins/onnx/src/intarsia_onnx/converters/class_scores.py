# SPDX-License-Identifier: Apache-2.0
"""What classifiers of the domain ``ai.onnx.ml`` share: labels and the transform of their scores."""

from __future__ import annotations

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import indexing, reduce, softmax, unary

from ..context import NodeContext


def label_array(node: NodeContext) -> np.ndarray:
    """Return the labels of classes, which are numbers."""
    if node.has("classlabels_strings") and node.strings("classlabels_strings"):
        raise node.unsupported(
            f"{node.op_type} with labels that are text", "export it with numbers as labels"
        )
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
        case _:
            raise node.unsupported(f"{node.op_type} with post_transform={transform}")
