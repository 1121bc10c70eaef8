# SPDX-License-Identifier: Apache-2.0
"""Types of graph expressions: tensors with static or symbolic dimensions, and tuples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim as Dim
from intarsia_runtime.size import Size as Size
from intarsia_runtime.size import variable as variable

Shape: TypeAlias = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a dense row-major tensor.

    Attributes:
        shape: Sizes, outermost first; ``()`` is a scalar.
        dtype: Element type.
    """

    shape: Shape
    dtype: DType

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return all(isinstance(size, int) for size in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers.

        Raises:
            UnsupportedError: A dimension is symbolic.
        """
        sizes = tuple(size for size in self.shape if isinstance(size, int))
        if len(sizes) != len(self.shape):
            raise UnsupportedError(
                f"the shape of {self} is not known at compile time",
                hint="give every input a shape, e.g. --shape input:1,3,224,224",
            )
        return sizes

    @property
    def elements(self) -> int:
        """Number of elements of a static tensor."""
        return math.prod(self.static_shape)

    @property
    def bytes(self) -> int:
        """Size in bytes of a static tensor."""
        return self.elements * self.dtype.bytes

    def with_shape(self, shape: Iterable[Size]) -> TensorType:
        """Return the same element type with another shape."""
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """Return the same shape with another element type."""
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        sizes = ", ".join(str(size) for size in self.shape)
        return f"Tensor[({sizes}{',' if self.rank == 1 else ''}), {self.dtype}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Type of a tuple of values."""

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        comma = "," if len(self.fields) == 1 else ""
        return f"({', '.join(str(field) for field in self.fields)}{comma})"


Type: TypeAlias = TensorType | TupleType
