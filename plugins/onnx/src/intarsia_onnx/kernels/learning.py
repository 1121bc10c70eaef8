# SPDX-License-Identifier: Apache-2.0
"""Training steps, random dropout, tree ensembles."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from intarsia_ir.ops.arrays import sigmoid

from .call import NumpyCall

Groups: TypeAlias = "list[tuple[np.ndarray, ...]]"
"""For each tensor that is trained: its value, its gradient, and the state of the method."""


def _groups(call: NumpyCall, operands: tuple[np.ndarray, ...], width: int) -> Groups:
    """Sort operands, given as all values, then all gradients, and so on, by tensor."""
    count, left = divmod(len(operands), width)
    if left:
        raise call.model_error(f"{len(operands)} tensors cannot be shared among groups of {width}")
    return [operands[index::count] for index in range(count)]


def _columns(rows: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Order results as operands are: all values, then all first states, and so on."""
    return tuple(item for column in zip(*rows, strict=True) for item in column)


def _regularized(call: NumpyCall, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    return np.float32(call.number("norm_coefficient", 0.0)) * x + gradient


def adagrad(
    call: NumpyCall, rate: np.ndarray, count: np.ndarray, *tensors: np.ndarray
) -> tuple[np.ndarray, ...]:
    """One step of Adagrad (Duchi et al., 2011)."""
    step = rate / (1 + count * np.float32(call.number("decay_factor", 0.0)))
    epsilon = np.float32(call.number("epsilon", 1e-6))
    rows: Groups = []
    for x, gradient, squares in _groups(call, tensors, 3):
        g = _regularized(call, x, gradient)
        total = squares + g * g
        new = x - step * g / (np.sqrt(total) + epsilon)
        rows.append((new.astype(x.dtype), total.astype(x.dtype)))
    return _columns(rows)


def adam(
    call: NumpyCall, rate: np.ndarray, count: np.ndarray, *tensors: np.ndarray
) -> tuple[np.ndarray, ...]:
    """One step of Adam (Kingma and Ba, 2015), with regularization before and after it."""
    alpha = np.float32(call.number("alpha", 0.9))
    beta = np.float32(call.number("beta", 0.999))
    epsilon = np.float32(call.number("epsilon", 1e-6))
    turns = float(count)
    if turns > 0:
        rate = rate * np.sqrt(1 - beta**turns) / (1 - alpha**turns)
    after = np.float32(1 - call.number("norm_coefficient_post", 0.0))
    rows: Groups = []
    for x, gradient, mean, square in _groups(call, tensors, 4):
        g = _regularized(call, x, gradient)
        new_mean = alpha * mean + (1 - alpha) * g
        new_square = beta * square + (1 - beta) * g * g
        new = (x - rate * new_mean / (np.sqrt(new_square) + epsilon)) * after
        rows.append((new.astype(x.dtype), new_mean.astype(x.dtype), new_square.astype(x.dtype)))
    return _columns(rows)


def momentum(
    call: NumpyCall, rate: np.ndarray, count: np.ndarray, *tensors: np.ndarray
) -> tuple[np.ndarray, ...]:
    """One step of gradient descent with momentum, standard or Nesterov's."""
    alpha = np.float32(call.number("alpha"))
    beta = np.float32(call.number("beta")) if int(count) > 0 else np.float32(1)
    nesterov = call.string("mode") == "nesterov"
    rows: Groups = []
    for x, gradient, speed in _groups(call, tensors, 3):
        g = _regularized(call, x, gradient)
        new_speed = alpha * speed + beta * g
        direction = g + alpha * new_speed if nesterov else new_speed
        rows.append(((x - rate * direction).astype(x.dtype), new_speed.astype(x.dtype)))
    return _columns(rows)


def dropout(
    call: NumpyCall,
    x: np.ndarray,
    ratio: np.ndarray | None = None,
    training: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Set random elements to 0 and scale the others; draws from MT19937, seeded by ``seed``."""
    if training is None or not bool(training):
        return NotImplemented
    share = 0.5 if ratio is None else float(ratio)
    if share == 0:
        return x.copy(), np.ones(x.shape, bool)
    generator = np.random.RandomState(call.integer("seed") if call.has("seed") else None)
    kept = generator.uniform(0, 1, x.shape) >= share
    return (kept * x * (1 / (1 - share))).astype(x.dtype), kept


def batch_normalization(
    call: NumpyCall,
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Normalize by the mean and variance of the batch itself, and move the running ones."""
    if not call.integer("training_mode", 0):
        return NotImplemented
    axes = (0, *range(2, x.ndim))
    shape = (1, -1, *[1] * (x.ndim - 2))
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    now, spread = wide.mean(axes), wide.var(axes)
    root = np.sqrt(spread + call.number("epsilon", 1e-5)).reshape(shape)
    y = (wide - now.reshape(shape)) / root * scale.reshape(shape) + bias.reshape(shape)
    keep = call.number("momentum", 0.9)
    running = (mean * keep + now * (1 - keep), var * keep + spread * (1 - keep))
    return y.astype(x.dtype), running[0].astype(mean.dtype), running[1].astype(var.dtype)


_MODES: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...] = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
)
_MEMBER = 6


def tree_ensemble(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Walk every tree for every row, and sum (or average, or take extremes of) the leaves."""
    targets = call.integer("n_targets")
    call.reserve((len(x), targets))
    weights = call.tensor("leaf_weights")
    owners = call.integers("leaf_targetids")
    leaves = np.array(
        [[_walk(call, row, root) for root in call.integers("tree_roots")] for row in x]
    ).reshape(len(x), -1)
    result = np.zeros((len(x), targets), x.dtype)
    for target in range(targets):
        mine = np.array(owners)[leaves] == target
        values = weights[leaves]
        match call.integer("aggregate_function", 1):
            case 0:
                part = np.where(mine, values, 0).sum(1) / max(leaves.shape[1], 1)
            case 1:
                part = np.where(mine, values, 0).sum(1)
            case 2:
                part = np.where(mine, values, np.inf).min(1)
            case _:
                part = np.where(mine, values, -np.inf).max(1)
        result[:, target] = part
    return _transformed(call, result)


def _walk(call: NumpyCall, row: np.ndarray, root: int) -> int:
    """Return the leaf that one row reaches in one tree."""
    modes = call.tensor("nodes_modes")
    features, splits = call.integers("nodes_featureids"), call.tensor("nodes_splits")
    missing = call.integers("nodes_missing_value_tracks_true", (0,) * len(modes))
    node = root
    for _ in range(len(modes)):  # a path longer than this goes in circles
        value, mode = row[features[node]], int(modes[node])
        if mode == _MEMBER:
            taken = value in _members(call, modes)[node]
        else:
            taken = bool(_MODES[mode](value, splits[node]))
        taken |= bool(missing[node]) and bool(np.isnan(value))
        side = "true" if taken else "false"
        leaf = call.integers(f"nodes_{side}leafs")[node]
        node = call.integers(f"nodes_{side}nodeids")[node]
        if leaf:
            return node
    raise call.model_error("the nodes of a tree form a cycle")


def _members(call: NumpyCall, modes: np.ndarray) -> dict[int, set[float]]:
    """Return the set that each membership node tests for."""
    sets: list[set[float]] = [set()]
    for value in call.tensor("membership_values").tolist():
        if np.isnan(value):
            sets.append(set())
        else:
            sets[-1].add(value)
    return dict(zip(np.flatnonzero(modes == _MEMBER).tolist(), sets, strict=False))


def _transformed(call: NumpyCall, scores: np.ndarray) -> np.ndarray:
    match call.integer("post_transform", 0):
        case 0:
            return scores
        case 1:
            grown = np.exp(scores - scores.max(1, keepdims=True))
            return grown / grown.sum(1, keepdims=True)
        case 2:
            return sigmoid(scores)
        case 3:
            grown = np.where(scores != 0, np.exp(scores - scores.max(1, keepdims=True)), 0)
            return (grown / np.maximum(grown.sum(1, keepdims=True), 1e-38)).astype(scores.dtype)
        case other:
            raise call.unsupported(f"post_transform={other}")


KERNELS = MappingProxyType(
    {
        ("", "Dropout"): dropout,
        ("", "BatchNormalization"): batch_normalization,
        ("ai.onnx.preview.training", "Adagrad"): adagrad,
        ("ai.onnx.preview.training", "Adam"): adam,
        ("ai.onnx.preview.training", "Momentum"): momentum,
        ("ai.onnx.ml", "TreeEnsemble"): tree_ensemble,
    }
)
