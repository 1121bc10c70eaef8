# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals of a model's inputs and outputs, around what is compiled of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import cast

import numpy as np

from intarsia_runtime.errors import ModelError

from ..ragged import pack_arrays, unpack_arrays
from ..tensors import named_dtype
from .call import OWN_DOMAIN, NumpyCall, Value


def pack_sequence(call: NumpyCall, value: Value) -> tuple[np.ndarray, np.ndarray]:
    """Return a list of arrays as :class:`..converters.ragged.Ragged` has them.

    Raises:
        ModelError: It is no list of arrays of the element type, and of the rank if that is fixed.
    """
    arrays = _arrays(call, value)
    rank = call.integer("rank", -1)
    for number, array in enumerate(arrays):
        if array.ndim != rank != -1:
            raise _wrong(call, number, f"has {array.ndim} dimensions, not {rank}")
    try:
        return pack_arrays(arrays, named_dtype(call.string("dtype")))
    except ValueError as error:
        raise call.model_error(f"an element has {error}") from None


def stack_sequence(call: NumpyCall, value: Value) -> np.ndarray:
    """Stack a list of arrays of one shape.

    Raises:
        ModelError: It is no list of arrays of this element type and shape.
    """
    arrays, shape = _arrays(call, value), call.integers("shape")
    for number, array in enumerate(arrays):
        if array.shape != shape:
            raise _wrong(call, number, f"has shape {array.shape}, not {shape}")
    dtype = named_dtype(call.string("dtype"))
    return np.stack(arrays) if arrays else np.zeros((0, *shape), dtype)


def _arrays(call: NumpyCall, value: Value) -> list[np.ndarray]:
    if value is None:  # an optional that holds nothing: what is read of it is not used
        return []
    items = value if isinstance(value, list) else [value]
    wanted = named_dtype(call.string("dtype"))
    for number, item in enumerate(items):
        if not isinstance(item, np.ndarray):
            raise _wrong(call, number, "is no tensor")
        if item.dtype != wanted:
            raise _wrong(call, number, f"is {item.dtype}, not {wanted}")
    return cast("list[np.ndarray]", items)


def _wrong(call: NumpyCall, number: int, what: str) -> Exception:
    return call.model_error(f"element {number} of input '{call.node.inputs[0]}' {what}")


def held_tensor(call: NumpyCall, value: Value) -> np.ndarray:
    """Return the tensor in an optional, or zeros in its place.

    Raises:
        ModelError: It has another element type or shape.
    """
    dtype, shape = named_dtype(call.string("dtype")), call.integers("shape")
    if value is None:
        return np.zeros(shape, dtype)
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        found = f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else "no tensor"
        name = call.node.inputs[0]
        raise call.model_error(f"input '{name}' must be {dtype}{shape}, or nothing, got {found}")
    return value


def holds(call: NumpyCall, value: Value) -> np.ndarray:
    """Whether an optional holds a value."""
    return np.array(value is not None)


def made_list(call: NumpyCall, *items: Value) -> list[Value]:
    """Make a sequence of its elements."""
    return list(items)


def unstacked(call: NumpyCall, rows: np.ndarray) -> list[Value]:
    """Make a sequence of the slices of a tensor along its first axis."""
    return list(rows)


def unpacked(call: NumpyCall, items: np.ndarray, shapes: np.ndarray) -> list[Value]:
    """Make a sequence of its elements, one behind the other, and their shapes."""
    return [*unpack_arrays(items, shapes)]


def made_optional(call: NumpyCall, held: Value, is_there: np.ndarray) -> Value:
    """Make an optional of a value."""
    return held if bool(is_there) else None


def nothing(call: NumpyCall) -> None:
    """Make an optional that holds nothing."""


def require(call: NumpyCall, holds: np.ndarray) -> tuple[Value, ...]:
    """Make nothing.

    Raises:
        ModelError: The condition does not hold; the node that asks for it is at fault.
    """
    if not bool(holds):
        raise ModelError(call.string("why"), where=call.string("of"))
    return ()


KERNELS = MappingProxyType(
    {
        (OWN_DOMAIN, "PackSequence"): pack_sequence,
        (OWN_DOMAIN, "StackSequence"): stack_sequence,
        (OWN_DOMAIN, "HeldTensor"): held_tensor,
        (OWN_DOMAIN, "Holds"): holds,
        (OWN_DOMAIN, "List"): made_list,
        (OWN_DOMAIN, "UnstackSequence"): unstacked,
        (OWN_DOMAIN, "UnpackSequence"): unpacked,
        (OWN_DOMAIN, "MakeOptional"): made_optional,
        (OWN_DOMAIN, "Nothing"): nothing,
        (OWN_DOMAIN, "Require"): require,
    }
)
