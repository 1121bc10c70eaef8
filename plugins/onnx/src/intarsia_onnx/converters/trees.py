# SPDX-License-Identifier: Apache-2.0
"""Ensembles of decision trees, of the domain ``ai.onnx.ml``.

Every test becomes ``value <= split``: a number below a split is at most the number before it, and
the other tests swap where a row goes on. Each leaf has a row of values, one for each target.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, indexing, reduce, softmax, trees, unary
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of
from ..context import NodeContext
from ..graph import UnsupportedAttribute

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Tests of nodes by their number in ``TreeEnsemble``; older operators have names."""

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_EMPTY = {"MIN": np.inf, "MAX": -np.inf}


class _Forest(Struct):
    """Trees as tables, and the values of their leaves.

    Attributes:
        nodes: Feature, and where a row goes on: ``[K, 4]``.
        splits: What the feature is compared with: ``[K]``.
        roots: First node of each tree.
        values: ``[K, targets]``; what a node that is no leaf has is never read.
    """

    nodes: np.ndarray
    splits: np.ndarray
    roots: np.ndarray
    values: np.ndarray


def tree_ensemble(node: NodeContext) -> Expr:
    """Convert TreeEnsemble: inner nodes and leaves are listed apart."""
    kind = numpy_dtype(dtype_of(node.input(0)))
    modes = [_MODES[int(mode)] for mode in node.tensor("nodes_modes")]
    features, splits = node.integers("nodes_featureids"), node.tensor("nodes_splits")
    weights, owners = node.tensor("leaf_weights"), node.integers("leaf_targetids")
    inner, leaves, targets = len(modes), len(owners), node.integer("n_targets")
    sides: list[np.ndarray] = []
    for side in ("true", "false"):
        numbers = np.array(node.integers(f"nodes_{side}nodeids"), np.int64)
        is_leaf = np.array(node.integers(f"nodes_{side}leafs"), bool)
        sides.append(np.where(is_leaf, numbers + inner, numbers))
    missing = node.integers("nodes_missing_value_tracks_true", (0,) * inner)
    aggregate = _AGGREGATES[node.integer("aggregate_function", 1)]
    values = np.full((inner + leaves, targets), _EMPTY.get(aggregate, 0.0), kind)
    values[inner + np.arange(leaves), list(owners)] = weights
    forest = _forest(node, modes, features, splits.astype(kind), sides, missing, leaves)
    forest.roots, forest.values = np.array(node.integers("tree_roots"), np.int64), values
    transform = _TRANSFORMS[node.integer("post_transform", 0)]
    return _transformed(node, _scores(node, forest, aggregate), transform)


def tree_ensemble_regressor(node: NodeContext) -> Expr:
    """Convert TreeEnsembleRegressor: nodes are named by their tree and a number in it."""
    if any(isinstance(value, UnsupportedAttribute) for value in node.node.attrs.values()):
        raise node.unsupported("TreeEnsembleRegressor with attributes as sparse tensors")
    doubles = node.has("nodes_values_as_tensor")
    kind = np.dtype(np.float64 if doubles else np.float32)
    if dtype_of(node.input(0)) is not (DType.FLOAT64 if doubles else DType.FLOAT32):
        raise node.unsupported(f"TreeEnsembleRegressor of {dtype_of(node.input(0))}")
    names = list(zip(node.integers("nodes_treeids"), node.integers("nodes_nodeids"), strict=True))
    place = {name: number for number, name in enumerate(names)}
    modes = [mode.removeprefix("BRANCH_") for mode in node.strings("nodes_modes")]
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    splits = node.tensor("nodes_values_as_tensor") if doubles else node.numbers("nodes_values")
    own = np.arange(len(names))
    sides: list[np.ndarray] = []
    for side in ("true", "false"):
        numbers = node.integers(f"nodes_{side}nodeids")
        rows = [place.get((tree, n), -1) for (tree, _), n in zip(names, numbers, strict=True)]
        sides.append(np.where(is_leaf, own, rows))
    missing = node.integers("nodes_missing_value_tracks_true", (0,) * len(names))
    tests = ["LEQ" if mode == "LEAF" else mode for mode in modes]
    features = node.integers("nodes_featureids")
    forest = _forest(node, tests, features, np.asarray(splits, kind), sides, missing, 0)
    aggregate = node.string("aggregate_function", "SUM")
    targets = node.integer("n_targets")
    values = np.full((len(names), targets), _EMPTY.get(aggregate, 0.0), kind)
    weights = node.tensor("target_weights_as_tensor") if doubles else node.numbers("target_weights")
    owners = zip(node.integers("target_treeids"), node.integers("target_nodeids"), strict=True)
    for name, target, weight in zip(owners, node.integers("target_ids"), weights, strict=True):
        row = place.get(name)
        if row is None or not 0 <= target < targets:
            raise node.model_error(f"a weight is given for node {name}, target {target}")
        old = values[row, target]
        values[row, target] = old + weight if np.isfinite(old) else weight
    first: dict[int, int] = {}
    for number, (tree, _) in enumerate(names):
        first.setdefault(tree, number)
    forest.roots, forest.values = np.array(list(first.values()), np.int64), values
    base = node.numbers("base_values") if node.has("base_values") else ()
    if node.has("base_values_as_tensor"):
        base = tuple(node.tensor("base_values_as_tensor").tolist())
    scores = _scores(node, forest, aggregate)
    if base:
        scores = node.call(binary.Add, scores, node.array(np.asarray(base, kind)))
    scores = node.cast(scores, DType.FLOAT32)
    return _transformed(node, scores, node.string("post_transform", "NONE"))


def _forest(
    node: NodeContext,
    modes: Sequence[str],
    features: Sequence[int],
    splits: np.ndarray,
    sides: Sequence[np.ndarray],
    missing: Sequence[int],
    leaves: int,
) -> _Forest:
    """Return tables of nodes, with ``leaves`` more at the end; trees and values are still empty."""
    tests = np.array(modes)
    unknown = set(modes) - set(_MODES[:4])
    if unknown:
        raise node.unsupported(f"{node.op_type} with tests {', '.join(sorted(unknown))}")
    swapped = np.isin(tests, ("GTE", "GT"))
    strict = np.isin(tests, ("LT", "GTE"))
    before = np.nextafter(splits, np.array(-np.inf, splits.dtype))
    true, false = sides
    table = np.zeros((len(modes) + leaves, 4), np.int64)
    inner = slice(0, len(modes))
    table[inner, trees.FEATURE] = features
    table[inner, trees.BELOW] = np.where(swapped, false, true)
    table[inner, trees.ABOVE] = np.where(swapped, true, false)
    table[inner, trees.MISSING] = np.where(np.array(missing, bool), true, false)
    table[len(modes) :, 1:] = np.arange(len(modes), len(table))[:, None]
    # Nothing is below the least number, so not even that itself passes.
    least = np.where(np.isneginf(splits), np.array(np.nan, splits.dtype), before)
    values = np.zeros(len(table), splits.dtype)
    values[inner] = np.where(strict, least, splits)
    if table.size and not (table.min() >= 0 and table[:, 1:].max() < len(table)):
        raise node.model_error("a node goes on where no node is")
    return _Forest(table, values, np.zeros(0, np.int64), np.zeros((0, 0)))


def _depths(node: NodeContext, forest: _Forest) -> np.ndarray:
    """Return how many steps each tree needs at most: all its nodes take one at once."""
    table, own = forest.nodes, np.arange(len(forest.nodes))
    depths = np.zeros(len(forest.roots), np.int64)
    reached, whose = forest.roots, np.arange(len(forest.roots))
    for _ in range(len(table) + 1):
        inner = (table[reached, 1:3] != own[reached][:, None]).any(axis=1)
        reached, whose = reached[inner], whose[inner]
        if not len(reached):
            return depths
        depths[np.unique(whose)] += 1
        if len(reached) > len(table):
            break  # more than there are: a node has two ways to it
        reached, whose = table[reached, 1:3].reshape(-1), np.repeat(whose, 2)
    raise node.model_error("the nodes of a tree form a cycle")


def _scores(node: NodeContext, forest: _Forest, aggregate: str) -> Expr:
    """Return what the leaves of all trees come to: ``[N, targets]``."""
    x = node.input(0)
    if rank_of(x) != 2:
        raise node.unsupported(f"{node.op_type} of {node.type_of(0)}")
    width = node.type_of(0).shape[1]
    if forest.nodes.size and isinstance(width, int) and forest.nodes[:, 0].max() >= width:
        raise node.model_error(f"a tree asks for feature {forest.nodes[:, 0].max()} of {width}")
    if len(forest.roots) and not (
        forest.roots.min() >= 0 and forest.roots.max() < len(forest.nodes)
    ):
        raise node.model_error("a tree begins where no node is")
    roots = np.stack([forest.roots, _depths(node, forest)], axis=1)
    tables = (forest.splits, forest.nodes.astype(np.int32), roots.astype(np.int32))
    leaves = node.call(trees.TreeLeaves, x, *map(node.array, tables))
    values = node.call(
        indexing.Take, node.array(forest.values), leaves, attrs=indexing.Take.Attrs(axis=0)
    )
    ops = {"SUM": reduce.Sum, "AVERAGE": reduce.Mean, "MIN": reduce.Min, "MAX": reduce.Max}
    if aggregate not in ops:
        raise node.model_error(f"aggregate_function='{aggregate}' is not defined")
    op = ops[aggregate]
    return node.call(op, values, attrs=op.Attrs(axes=(1,), keepdims=False))


def _transformed(node: NodeContext, scores: Expr, transform: str) -> Expr:
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return node.call(softmax.Softmax, scores, attrs=softmax.Softmax.Attrs(axis=1))
        case "LOGISTIC":
            return node.call(unary.Sigmoid, scores)
        case _:
            raise node.unsupported(f"{node.op_type} with post_transform={transform}")


CONVERTERS = MappingProxyType(
    {
        "ai.onnx.ml::TreeEnsemble": tree_ensemble,
        "ai.onnx.ml::TreeEnsembleRegressor": tree_ensemble_regressor,
    }
)
