# SPDX-License-Identifier: Apache-2.0
"""Values that the user gives inputs when compiling: such an input is a constant of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from intarsia_runtime.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from .graph.types import TensorType

Given: TypeAlias = Any
"""A number, a list, an array, or a text such as ``16000``, ``true`` or ``1,2,3``."""

_WORDS = {"true": 1, "false": 0}


def parse_value(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``.

    Raises:
        UsageError: It is something else.
    """
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"'{text}' is no value of an input", hint="for example --value sr=16000")
    return name, value


def input_values(
    given: Mapping[str, Given], types: Mapping[str, TensorType]
) -> dict[str, np.ndarray]:
    """Return values as arrays of the inputs' types.

    Args:
        given: By the names of inputs. A value has as many elements as the input; sizes that the
            model leaves open are those of the value, or 1.
        types: The types of all inputs.

    Raises:
        UsageError: There is no such input, or the value does not fit it.
    """
    return {name: _array(name, value, types) for name, value in given.items()}


def _array(name: str, value: Given, types: Mapping[str, TensorType]) -> np.ndarray:
    import numpy as np  # parsing a command line does without

    from .ops.arrays import numpy_dtype

    if name not in types:
        hint = did_you_mean(name, types) or f"inputs: {', '.join(types)}"
        raise UsageError(f"a value is given for '{name}', which is no input", hint=hint)
    type_ = types[name]
    dtype = numpy_dtype(type_.dtype)
    wrong = UsageError(
        f"'{value}' is no value of input '{name}', which is {type_}",
        hint=f"for example {name}=1" if type_.rank == 0 else f"for example {name}=1,2,3",
    )
    try:
        read = _numbers(value) if isinstance(value, str) else value
        found = np.asarray(read)
        array = found.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        raise wrong from None
    kept = array.astype(found.dtype, casting="unsafe") == found if found.dtype != object else True
    whole = dtype.kind == "f" or np.all(kept)
    sizes = tuple(size if isinstance(size, int) else -1 for size in type_.shape)
    if found.shape and len(found.shape) == len(sizes):
        sizes = tuple(
            size if size >= 0 else own for size, own in zip(sizes, found.shape, strict=True)
        )
    if not whole or sizes.count(-1) > 1:
        raise wrong
    try:
        return array.reshape(sizes).copy()
    except ValueError:
        raise wrong from None


def _numbers(text: str) -> list[int | float] | int | float:
    """Read a number, or several with commas."""
    parts = [part.strip() for part in text.split(",")]
    numbers = [_number(part) for part in parts]
    return numbers if len(numbers) > 1 else numbers[0]


def _number(text: str) -> int | float:
    lower = text.lower()
    if lower in _WORDS:
        return _WORDS[lower]
    try:
        return int(text, 0)
    except ValueError:
        return float(text)
