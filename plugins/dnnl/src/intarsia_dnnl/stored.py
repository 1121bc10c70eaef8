# SPDX-License-Identifier: Apache-2.0
"""A constant of a region as it is given to the loader: row-major, or packed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from intarsia_runtime.plugin import ArtifactError

from .packed import PackedWeight
from .program import PrimitiveProgram


class StoredWeight:
    """A constant, and its row-major form once somebody asks for it.

    Args:
        data: What is stored, at any address.
        packed: In which layout it lies; ``None`` means row-major.
        plain_bytes: Size of the row-major form.

    Attributes:
        data: What is stored.
        packed: In which layout it lies.
        plain_bytes: Size of the row-major form.
        unpacked_bytes: Memory that the row-major form takes; 0 if nobody asked for it.
    """

    def __init__(self, data: np.ndarray, packed: PackedWeight | None, plain_bytes: int) -> None:
        self.data = data
        self.packed = packed
        self.plain_bytes = plain_bytes
        self.unpacked_bytes = 0
        self._plain: np.ndarray | None = None

    def plain(self) -> np.ndarray:
        """Return the row-major constant, which the library wants aligned to its element size."""
        if self._plain is None:
            if self.packed is None:
                self._plain = np.require(self.data, requirements=["A"])
            else:
                self._plain = self.packed.unpack(self.data)
                self.unpacked_bytes = self._plain.nbytes
        return self._plain


def stored_weight(
    program: PrimitiveProgram, value: int, constants: Mapping[str, np.ndarray]
) -> StoredWeight:
    """Return the constant that is ``value``.

    Raises:
        ArtifactError: It is missing, or not what the program says.
    """
    name, packed = program.constants[value], program.packed.get(value)
    if name not in constants:
        raise ArtifactError(f"the constant '{name}' is missing", where="dnnl")
    data = constants[name]
    dtype, shape = program.dtypes[value], program.shapes[value]
    stored = shape if packed is None else (packed.layout.elements,)
    if data.dtype.name != dtype or data.size != prod(stored):
        raise ArtifactError(
            f"the constant '{name}' is {data.dtype}{list(data.shape)}, not {dtype}{list(stored)}",
            where="dnnl",
        )
    dense = np.require(data, requirements=["C"])
    if packed is not None:
        dense = dense.reshape(-1)
    return StoredWeight(dense, packed, prod(shape) * dense.itemsize)
