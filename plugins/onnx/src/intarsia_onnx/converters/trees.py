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
from intarsia_ir.ops import binary, compare, indexing, reduce, trees
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of
from ..context import NodeContext
from ..graph import UnsupportedAttribute
from .class_scores import (
    best_label,
    label_array,
    transformed,
    transformed_targets,
    two_scores,
)
from .node_names import NodeNames

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Tests of nodes by their number in ``TreeEnsemble``; older operators have names."""

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MISSING = "nodes_missing_value_tracks_true"
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


def _among(words: Sequence[str], wanted: frozenset[str]) -> np.ndarray:
    """Return which words are wanted ones."""
    return np.fromiter(map(wanted.__contains__, words), bool, len(words))


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
    missing = node.integers(_MISSING, (0,) * inner)
    aggregate = _AGGREGATES[node.integer("aggregate_function", 1)]
    values = np.full((inner + leaves, targets), _EMPTY.get(aggregate, 0.0), kind)
    values[inner + np.arange(leaves), list(owners)] = weights
    forest = _forest(node, modes, features, splits.astype(kind), sides, missing, leaves)
    forest.roots, forest.values = np.array(node.integers("tree_roots"), np.int64), values
    transform = _TRANSFORMS[node.integer("post_transform", 0)]
    scores = _scores(node, forest.values, _leaves(node, forest), aggregate)
    return transformed_targets(node, scores, transform)


def tree_ensemble_regressor(node: NodeContext) -> Expr:
    """Convert TreeEnsembleRegressor."""
    aggregate = node.string("aggregate_function", "SUM")
    forest, base = _named_forest(node, "target", node.integer("n_targets"), aggregate)
    scores = _scores(node, forest.values, _leaves(node, forest), aggregate)
    scores = _with_base(node, scores, base)
    return transformed_targets(node, scores, node.string("post_transform", "NONE"))


def tree_ensemble_classifier(node: NodeContext) -> tuple[Expr, Expr]:
    """Convert TreeEnsembleClassifier: the label with the largest score, and all scores.

    Of two classes a forest may score one only. Its weights then say what the score is: that of the
    second class as a probability if none is negative, else its distance from the border.
    """
    labels, transform = label_array(node), node.string("post_transform", "NONE")
    forest, base = _named_forest(node, "class", len(labels), "SUM")
    leaves, scored = _leaves(node, forest), set(node.integers("class_ids"))
    scores = _scores(node, forest.values, leaves, "SUM")
    if len(labels) != 2 or len(scored) != 1:
        candidates = scores = _with_base(node, scores, base)
        if not len(base) and (forest.values < 0).any():
            candidates = _of_reached(node, forest.values, leaves, scores)
        return best_label(node, candidates, labels), transformed(node, scores, transform)
    (column,) = scored
    if len(base) > 1 - column:
        raise node.never_supported(
            f"{node.op_type} with {len(base)} base values, of which only class {column} has scores",
            "ONNX and ONNX Runtime add them to different scores; write them into the leaves",
        )
    score = _with_base(node, node.slice(scores, 1, column, column + 1), base)
    is_probability = bool((forest.values >= 0).all())
    border = node.scalar(0.5 if is_probability else 0.0, DType.FLOAT32)
    above = node.item(node.call(compare.Greater, score, border), 1, 0)
    label = node.call(compare.Where, above, node.array(labels[1]), node.array(labels[0]))
    if column:
        return label, transformed(node, node.cast(scores, DType.FLOAT32), transform)
    return label, two_scores(node, score, transform, is_probability=is_probability)


def _named_forest(
    node: NodeContext, what: str, targets: int, aggregate: str
) -> tuple[_Forest, np.ndarray]:
    """Return the trees of an older operator, which names nodes by their tree and a number in it.

    ``what`` begins the names of the attributes of leaves. The other result is what is added to the
    scores; empty if nothing is.
    """
    if any(isinstance(value, UnsupportedAttribute) for value in node.node.attrs.values()):
        raise node.never_supported(f"{node.op_type} with attributes as sparse tensors")
    doubles = node.has("nodes_values_as_tensor")
    kind = np.dtype(np.float64 if doubles else np.float32)
    if dtype_of(node.input(0)) is not (DType.FLOAT64 if doubles else DType.FLOAT32):
        raise node.unsupported(f"{node.op_type} of {dtype_of(node.input(0))}")
    names = NodeNames.of(node.integers("nodes_treeids"), node.integers("nodes_nodeids"))
    modes = node.strings("nodes_modes")
    values = "nodes_values_as_tensor" if doubles else "nodes_values"
    lists = ("treeids", "nodeids", "modes", "truenodeids", "falsenodeids", "featureids")
    _check_lengths(node, [*(f"nodes_{name}" for name in lists), values, _MISSING])
    test_of = {mode: mode.removeprefix("BRANCH_") for mode in set(modes)}
    is_leaf = _among(modes, frozenset(mode for mode, test in test_of.items() if test == "LEAF"))
    splits = node.tensor(values) if doubles else node.numbers(values)
    own = np.arange(len(names.trees))
    sides: list[np.ndarray] = []
    for side in ("true", "false"):
        rows = names.rows(names.trees, node.integers(f"nodes_{side}nodeids"))
        sides.append(np.where(is_leaf, own, rows))
    missing = node.integers(_MISSING, (0,) * len(own))
    test_of |= {mode: "LEQ" for mode, test in test_of.items() if test == "LEAF"}
    tests = list(map(test_of.__getitem__, modes))
    features = node.integers("nodes_featureids")
    forest = _forest(node, tests, features, np.asarray(splits, kind), sides, missing, 0)
    start = _EMPTY.get(aggregate, 0.0)
    forest.values = _weights(node, what, names, np.full((len(own), targets), start, kind))
    forest.roots = np.sort(np.unique(names.trees, return_index=True)[1])
    base = node.numbers("base_values") if node.has("base_values") else ()
    if node.has("base_values_as_tensor"):
        base = tuple(node.tensor("base_values_as_tensor").tolist())
    return forest, np.asarray(base, kind)


def _check_lengths(node: NodeContext, names: Sequence[str]) -> None:
    """Check that those of these attributes that are there have equally many elements."""
    lists = {name: node.node.attrs[name] for name in names if node.has(name)}
    counts = {name: len(one) for name, one in lists.items() if isinstance(one, tuple | np.ndarray)}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise node.model_error(f"lists that belong together have different lengths: {found}")


def _weights(node: NodeContext, what: str, names: NodeNames, values: np.ndarray) -> np.ndarray:
    """Add the weights of leaves to ``values``, which has a row for each node."""
    tensor, listed = f"{what}_weights_as_tensor", f"{what}_weights"
    weights = node.tensor(tensor) if node.has(tensor) else node.numbers(listed)
    ids = (f"{what}_treeids", f"{what}_nodeids", f"{what}_ids")
    _check_lengths(node, [*ids, tensor if node.has(tensor) else listed])
    owners = [np.array(node.integers(f"{what}_{own}ids"), np.int64) for own in ("tree", "node")]
    targets, weights = np.array(node.integers(f"{what}_ids"), np.int64), np.asarray(weights)
    rows = names.rows(*owners)
    wrong = np.flatnonzero((rows < 0) | (targets < 0) | (targets >= values.shape[1]))
    if len(wrong):
        owner = tuple(int(ids[wrong[0]]) for ids in owners)
        raise node.model_error(f"a weight is given for node {owner}, {what} {targets[wrong[0]]}")
    values[rows, targets] = -0.0  # what weights are added to, in the place of an infinite number
    np.add.at(values, (rows, targets), weights.astype(values.dtype))
    return values


def _of_reached(node: NodeContext, values: np.ndarray, leaves: Expr, scores: Expr) -> Expr:
    """Return the scores; minus infinity for a class that no leaf had a weight of."""
    counts = _scores(node, (values != 0).astype(np.float32), leaves, "SUM")
    is_reached = node.call(compare.Greater, counts, node.scalar(0.0, DType.FLOAT32))
    return node.call(compare.Where, is_reached, scores, node.scalar(-np.inf, DType.FLOAT32))


def _with_base(node: NodeContext, scores: Expr, base: np.ndarray) -> Expr:
    """Add what all rows begin with; the result has single precision."""
    if len(base):
        scores = node.call(binary.Add, scores, node.array(base))
    return node.cast(scores, DType.FLOAT32)


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
    unknown = set(modes) - set(_MODES[:4])
    if unknown:
        raise node.never_supported(f"{node.op_type} with tests {', '.join(sorted(unknown))}")
    swapped = _among(modes, frozenset(("GTE", "GT")))
    strict = _among(modes, frozenset(("LT", "GTE")))
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
        depths[whose] += 1  # once, however often a tree is there
        if len(reached) > len(table):
            break  # more than there are: a node has two ways to it
        reached, whose = table[reached, 1:3].reshape(-1), np.repeat(whose, 2)
    raise node.model_error("the nodes of a tree form a cycle")


def _leaves(node: NodeContext, forest: _Forest) -> Expr:
    """Return the leaf of each tree that a row comes to: ``[N, trees]``."""
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
    return node.call(trees.TreeLeaves, x, *map(node.array, tables))


def _scores(node: NodeContext, values: np.ndarray, leaves: Expr, aggregate: str) -> Expr:
    """Return what the values of the leaves of all trees come to: ``[N, targets]``."""
    found = node.call(indexing.Take, node.array(values), leaves, attrs=indexing.Take.Attrs(axis=0))
    ops = {"SUM": reduce.Sum, "AVERAGE": reduce.Mean, "MIN": reduce.Min, "MAX": reduce.Max}
    if aggregate not in ops:
        raise node.model_error(f"aggregate_function='{aggregate}' is not defined")
    op = ops[aggregate]
    return node.call(op, found, attrs=op.Attrs(axes=(1,), keepdims=False))


CONVERTERS = MappingProxyType(
    {
        "ai.onnx.ml::TreeEnsemble": tree_ensemble,
        "ai.onnx.ml::TreeEnsembleClassifier": tree_ensemble_classifier,
        "ai.onnx.ml::TreeEnsembleRegressor": tree_ensemble_regressor,
    }
)
