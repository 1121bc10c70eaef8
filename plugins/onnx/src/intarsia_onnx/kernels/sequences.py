# SPDX-License-Identifier: Apache-2.0
"""Sequences, which are Python lists here, and optionals, which are values or ``None``."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from .call import NumpyCall, Value


def identity(call: NumpyCall, value: Value) -> Value:
    """Give back any value, a sequence or an optional too."""
    return value if not isinstance(value, np.ndarray) else value.copy()


def sequence_construct(call: NumpyCall, *items: Value) -> list[Value]:
    """Put tensors into a sequence."""
    return list(items)


def sequence_empty(call: NumpyCall) -> list[Value]:
    """Make a sequence of nothing."""
    return []


def _place(call: NumpyCall, items: list[Value], position: np.ndarray | None, last: int) -> int:
    """Return a position from the front; ``last`` is the largest allowed, and the default."""
    if position is None:
        return last
    index = int(position.reshape(()))
    if not -len(items) <= index <= last:
        raise call.model_error(f"position {index} is outside of a sequence of {len(items)}")
    return index + len(items) if index < 0 else index


def sequence_insert(
    call: NumpyCall, items: list[Value], item: Value, position: np.ndarray | None = None
) -> list[Value]:
    """Insert before ``position``, or at the end."""
    index = _place(call, items, position, len(items))
    return [*items[:index], item, *items[index:]]


def sequence_erase(
    call: NumpyCall, items: list[Value], position: np.ndarray | None = None
) -> list[Value]:
    """Remove the element at ``position``, or the last one."""
    index = _place(call, items, position, len(items) - 1)
    return [*items[:index], *items[index + 1 :]]


def sequence_at(call: NumpyCall, items: list[Value], position: np.ndarray) -> Value:
    """Return the element at ``position``."""
    return items[_place(call, items, position, len(items) - 1)]


def sequence_length(call: NumpyCall, items: list[Value]) -> np.ndarray:
    """Count the elements."""
    return np.array(len(items), np.int64)


def split_to_sequence(
    call: NumpyCall, x: np.ndarray, split: np.ndarray | None = None
) -> list[Value]:
    """Cut a tensor into a sequence: in slices of one, equal parts, or parts of given sizes."""
    axis = call.axis("axis", x.ndim, 0)
    size = x.shape[axis]
    if split is None:
        slices = [np.take(x, [index], axis) for index in range(size)]
        return [part if call.integer("keepdims", 1) else part.squeeze(axis) for part in slices]
    if split.ndim == 0:
        step = int(split)
        if step < 1:
            raise call.model_error(f"parts of {step} elements")
        borders = list(range(step, size, step))
        count = len(borders) + 1 if size else 0
    else:
        borders, count = np.cumsum(split)[:-1].tolist(), len(split)
        if int(split.sum()) != size:
            raise call.model_error(f"parts of {split.tolist()} for {size} elements")
    parts = np.split(x, borders, axis)[:count]  # of nothing, NumPy makes one part
    return [np.ascontiguousarray(part) for part in parts]


def concat_from_sequence(call: NumpyCall, items: list[Value]) -> np.ndarray:
    """Join the elements along a dimension, a new one if asked for."""
    axis = call.integer("axis")
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    if len(arrays) < len(items):
        raise call.model_error("a sequence of sequences cannot be joined")
    return np.stack(arrays, axis) if call.integer("new_axis", 0) else np.concatenate(arrays, axis)


def optional(call: NumpyCall, value: Value = None) -> Value:
    """Make an optional that holds the value, or nothing."""
    return value


def optional_has_element(call: NumpyCall, value: Value = None) -> np.ndarray:
    """Whether the optional holds anything; a plain value always does."""
    return np.array(value is not None)


def optional_get_element(call: NumpyCall, value: Value) -> Value:
    """Return what the optional holds.

    Raises:
        ModelError: It holds nothing.
    """
    if value is None:
        raise call.model_error("the optional holds nothing")
    return value


KERNELS = MappingProxyType(
    {
        ("", "Identity"): identity,
        ("", "SequenceConstruct"): sequence_construct,
        ("", "SequenceEmpty"): sequence_empty,
        ("", "SequenceInsert"): sequence_insert,
        ("", "SequenceErase"): sequence_erase,
        ("", "SequenceAt"): sequence_at,
        ("", "SequenceLength"): sequence_length,
        ("", "SplitToSequence"): split_to_sequence,
        ("", "ConcatFromSequence"): concat_from_sequence,
        ("", "Optional"): optional,
        ("", "OptionalHasElement"): optional_has_element,
        ("", "OptionalGetElement"): optional_get_element,
    }
)
