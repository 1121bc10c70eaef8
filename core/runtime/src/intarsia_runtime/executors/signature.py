# SPDX-License-Identifier: Apache-2.0
"""Checks what a caller passes against the signature of a model, before any native code sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias, cast

import numpy as np

from ..abi import NumpyType, array_dtype
from ..artifact.plan import TensorSpec
from ..errors import ModelError, ResourceError
from ..loading import RunValue
from ..memory import ResultMemory

Inputs: TypeAlias = "Mapping[str, object] | list[object] | tuple[object, ...]"
"""Arrays by name, or in the order of the model. NumPy, or anything with DLPack on the CPU."""

OutputRow: TypeAlias = "tuple[str, tuple[int, ...], NumpyType]"
"""Name, shape and element type of an output."""

_ARRAYS: tuple[type[object], ...] = (np.ndarray, np.generic)


class CheckedSignature:
    """Inputs or outputs of a model, prepared for fast checks.

    Args:
        specs: The tensors, in the order of the model.
        role: ``input`` or ``output``, for messages.
    """

    def __init__(self, specs: Sequence[TensorSpec], role: str) -> None:
        self.specs = tuple(specs)
        self.role = role
        self.names = tuple(spec.name for spec in specs)
        self._only = {n: spec.only for n, spec in enumerate(specs) if spec.only}
        self._rows = tuple((spec.name, spec.shape, array_dtype(spec)) for spec in specs)
        self._memory = ResultMemory().fitted(self._rows)

    def allocate(self) -> list[np.ndarray]:
        """Return new arrays, contents undefined."""
        return new_outputs(self._rows, self._memory)

    def check_inputs(self, values: Inputs) -> list[np.ndarray]:
        """Return contiguous arrays in the model's order; a copy only of what is not contiguous.

        Raises:
            ModelError: A name, a shape or an element type is not the model's.
        """
        arrays: list[np.ndarray] = []
        for value, (name, shape, dtype) in zip(
            ordered_values(values, self.names, self.role), self._rows, strict=True
        ):
            array = value if type(value) is np.ndarray else as_array(value, name)
            own = array.dtype
            if (own is not dtype and own != dtype) or array.shape != shape:
                raise self._mismatch(array, name, shape, dtype)
            # ``carray`` is one look at the flags; ``contiguous`` takes read-only arrays as well.
            arrays.append(array if array.flags.carray else contiguous(array, name))
        if self._only:
            self._check_values(arrays)
        return arrays

    def _check_values(self, arrays: Sequence[np.ndarray]) -> None:
        for number, known in self._only.items():
            found = tuple(arrays[number].reshape(-1).tolist())
            if found not in known:
                values = " or ".join(str(list(value)) for value in known[:8])
                more = ", ..." if len(known) > 8 else ""
                raise ModelError(
                    f"input '{self.names[number]}' is {list(found)}; the shapes that the model "
                    f"declares go with {values}{more}",
                    hint="name the sizes that depend on it, or build for the executor vm",
                )

    def check_outputs(self, values: Inputs, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the caller's arrays in the model's order, to be written into.

        Raises:
            ModelError: One is not an array of the right shape and element type, cannot be written
                to directly, or overlaps another or an input.
        """
        arrays: list[np.ndarray] = []
        for value, (name, shape, dtype) in zip(
            ordered_values(values, self.names, self.role), self._rows, strict=True
        ):
            if not isinstance(value, np.ndarray):
                raise ModelError(f"output '{name}' is a {type(value).__name__}, not a NumPy array")
            array = cast("np.ndarray", value)
            if array.dtype != dtype or array.shape != shape:
                raise self._mismatch(array, name, shape, dtype)
            if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
                raise ModelError(f"output '{name}' is not a writable, contiguous, aligned array")
            if any(np.may_share_memory(array, other) for other in (*inputs, *arrays)):
                raise ModelError(f"output '{name}' overlaps an input or another output")
            arrays.append(array)
        return arrays

    def _mismatch(
        self, array: np.ndarray, name: str, shape: tuple[int, ...], dtype: NumpyType
    ) -> ModelError:
        return ModelError(
            f"{self.role} '{name}' must be {dtype} {shape}, got {_dtype_text(array)} {array.shape}"
        )


def new_outputs(rows: Sequence[OutputRow], memory: ResultMemory | None) -> list[np.ndarray]:
    """Return new arrays, contents undefined; ``memory`` is where there are large ones.

    Raises:
        ResourceError: There is no memory for one.
    """
    try:
        return [(memory or np).empty(shape, dtype) for _, shape, dtype in rows]
    except (MemoryError, ValueError):  # the latter where no address space has as many bytes
        name, shape, dtype = max(rows, key=lambda row: prod(row[1]) * row[2].itemsize)
        raise _no_memory(f"output '{name}'", dtype, shape) from None


def contiguous(array: np.ndarray, name: str) -> np.ndarray:
    """Return an array as native code reads it; a copy only of what is not contiguous.

    Raises:
        ResourceError: There is no memory for the copy.
    """
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    try:
        return np.require(array, requirements=("C", "A"))
    except (MemoryError, ValueError):
        raise _no_memory(f"a copy of input '{name}'", array.dtype, array.shape) from None


def _no_memory(what: str, dtype: NumpyType, shape: tuple[int, ...]) -> ResourceError:
    return ResourceError(
        f"no memory for {what}, {dtype} {shape}", hint="use a smaller batch or input"
    )


def ordered_values(values: Inputs, names: Sequence[str], role: str = "input") -> Sequence[object]:
    """Return the values of inputs, or of another role, in the model's order, whatever they are.

    Raises:
        ModelError: One is missing, or there is one too many.
    """
    if isinstance(values, (dict, Mapping)):  # the first is 10 times faster
        if len(values) == len(names):
            try:
                return [values[name] for name in names]
            except KeyError:
                pass
        raise _wrong_names(values, names, role)
    if not isinstance(values, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] # users
        raise ModelError(
            f"the {role}s are a {type(values).__name__}, not a mapping or a sequence",
            hint=f"pass {{{', '.join(repr(name) + ': array' for name in names)}}}",
        )
    if len(values) != len(names):
        raise ModelError(f"expected {_listing(names, role)}, got {len(values)} {role}s")
    return values


def _wrong_names(values: Mapping[str, object], names: Sequence[str], role: str) -> ModelError:
    from difflib import get_close_matches  # opening a model does without

    unknown = [str(name) for name in values if name not in names]
    missing = [name for name in names if name not in values]
    hint = ""
    for name in unknown:
        close = get_close_matches(name, missing or names, 1)
        if close:
            hint = f"did you mean '{close[0]}' instead of '{name}'?"
            break
    problem = f"no {role} '{missing[0]}' was given" if missing else ""
    if unknown:
        problem = f"the model has no {role} '{unknown[0]}'"
    return ModelError(f"{problem}; expected {_listing(names, role)}", hint=hint)


def _listing(names: Sequence[str], role: str) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:8])
    more = ", …" if len(names) > 8 else ""
    return f"{len(names)} {role}{'' if len(names) == 1 else 's'}: {shown}{more}"


def _dtype_text(array: np.ndarray) -> str:
    return str(array.dtype) if array.dtype.isnative else f"{array.dtype.name} with swapped bytes"


def as_array(value: object, name: str) -> np.ndarray:
    """View the value of an input as an array; DLPack first, then whatever NumPy understands.

    Raises:
        ModelError: It is none.
    """
    try:
        if isinstance(value, _ARRAYS):
            return np.asarray(value)
        try:
            return np.from_dlpack(value)  # pyright: ignore[reportArgumentType] # tested by the call itself
        except AttributeError:
            return np.asarray(value)
    except Exception as error:  # foreign array types raise anything
        raise ModelError(f"input '{name}' cannot be read as an array: {error}") from error


def copy_into(results: Mapping[str, RunValue], outputs: Inputs) -> None:
    """Copy results into the caller's arrays.

    Raises:
        ModelError: An array is missing, cannot be written to, overlaps another, or has another
            shape or element type. Nothing was copied.
    """
    given = ordered_values(outputs, tuple(results), "output")
    taken: list[np.ndarray] = []
    for (name, value), target in zip(results.items(), given, strict=True):
        if not isinstance(target, np.ndarray) or not isinstance(value, np.ndarray):
            raise ModelError(f"output '{name}' is no array, or has none to be written into")
        array = cast("np.ndarray", target)
        if array.shape != value.shape or array.dtype != value.dtype:
            raise ModelError(
                f"output '{name}' is {value.dtype} {value.shape}, "
                f"the array for it is {array.dtype} {array.shape}"
            )
        if not array.flags.writeable:
            raise ModelError(f"the array for output '{name}' is read-only")
        if any(np.may_share_memory(array, other) for other in taken):
            raise ModelError(f"the array for output '{name}' overlaps that for another output")
        taken.append(array)
    for value, array in zip(results.values(), taken, strict=True):
        array[...] = value
