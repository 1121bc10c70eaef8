# SPDX-License-Identifier: Apache-2.0
"""What makes features of raw columns, of the domain ``ai.onnx.ml``."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import binary, compare, reduce, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import STATIC_HINT, dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .index_range import required

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})


def one_hot_encoder(node: NodeContext) -> Expr:
    """Convert OneHotEncoder of numbers: one more dimension, 1 where the category is.

    A number is compared without its fraction. Of equal categories, the last one counts.
    """
    categories = np.array(node.integers("cats_int64s", ()), np.int64)
    if not len(categories):
        raise node.model_error("cats_int64s lists no category, and the operand holds numbers")
    x = node.cast(node.input(0), DType.INT64)
    column = node.reshape(x, (*sizes_of(x), 1))
    is_hot = node.call(compare.Equal, column, node.array(categories))
    last_places = {category: place for place, category in enumerate(categories.tolist())}
    counts = np.array([last_places[one] == place for place, one in enumerate(categories.tolist())])
    if not counts.all():
        is_hot = node.call(binary.LogicalAnd, is_hot, node.array(counts))
    result = node.cast(is_hot, DType.FLOAT32)
    if node.integer("zeros", 1):
        return result
    last = reduce.Max.Attrs(axes=(rank_of(x),), keepdims=False)
    every = reduce.All.Attrs(axes=tuple(range(rank_of(x))), keepdims=False)
    is_known = node.cast(node.call(reduce.Max, result, attrs=last), DType.BOOL)
    holds = node.call(reduce.All, is_known, attrs=every)
    return required(node, holds, result, f"a value is none of the {len(categories)} categories")


def imputer(node: NodeContext) -> Expr:
    """Convert Imputer: what is missing becomes the value of all features, or of its feature."""
    x, kind = node.input(0), dtype_of(node.input(0))
    is_float = kind in _FLOATS
    name = "imputed_value_floats" if is_float else "imputed_value_int64s"
    values = np.array(node.numbers(name) if is_float else node.integers(name, ()))
    if not len(values):
        raise node.model_error(f"{name} is empty, and the operand has elements of {kind.value}")
    if len(values) > 1:
        if rank_of(x) not in (1, 2):
            raise node.unsupported(f"{node.op_type} of {node.type_of(0)} by {len(values)} values")
        size = sizes_of(x)[-1]
        if not require_equal(size, len(values), f"{node.span}: one value for each feature"):
            raise node.model_error(f"{len(values)} values for {size} features")
    if is_float:
        missing = node.number("replaced_value_float", 0.0)
    else:
        missing = node.integer("replaced_value_int64", 0)
    if missing != missing:
        is_missing = node.call(unary.Isnan, x)
    else:
        is_missing = node.call(compare.Equal, x, node.scalar(missing, kind))
    filled = node.cast(node.array(values), kind) if len(values) > 1 else None
    filled = node.scalar(values[0], kind) if filled is None else node.folded(filled)
    return node.call(compare.Where, is_missing, filled, x)


def feature_vectorizer(node: NodeContext) -> Expr:
    """Convert FeatureVectorizer: columns side by side, cut or filled with 0 to given widths."""
    widths = node.integers("inputdimensions", ())
    operands = node.variadic()
    if len(widths) != len(operands):
        raise node.model_error(f"{len(widths)} widths for {len(operands)} operands")
    return node.concat([_columns(node, *pair) for pair in zip(operands, widths, strict=True)], 1)


def _columns(node: NodeContext, operand: Expr, width: int) -> Expr:
    """Return an operand in single precision as ``[N, width]``; a vector is one row."""
    x = node.cast(operand, DType.FLOAT32)
    if rank_of(x) == 1:
        x = node.reshape(x, (1, *sizes_of(x)))
    if rank_of(x) != 2:
        raise node.unsupported(f"{node.op_type} of a tensor of {rank_of(x)} dimensions")
    size = sizes_of(x)[1]
    if not isinstance(size, int):
        raise node.unsupported(f"{node.op_type} of {size} columns", STATIC_HINT)
    if size >= width:
        return node.slice(x, 1, 0, width)
    zeros = node.broadcast(node.scalar(0.0, DType.FLOAT32), extents((sizes_of(x)[0], width - size)))
    return node.concat([x, zeros], 1)


CONVERTERS = MappingProxyType(
    {
        "ai.onnx.ml::FeatureVectorizer": feature_vectorizer,
        "ai.onnx.ml::Imputer": imputer,
        "ai.onnx.ml::OneHotEncoder": one_hot_encoder,
    }
)
