# SPDX-License-Identifier: Apache-2.0
"""Memory that loops read and write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from intarsia_runtime.dtype import DType


class MemoryScope(Enum):
    """Where a buffer lives."""

    GLOBAL = "global"  # parameter, or workspace planned by the caller
    STACK = "stack"  # small temporary of one call (or one thread of a parallel loop)
    SHARED = "shared"  # one for all threads of a block of a device
    REGISTER = "register"  # every index is a constant once loops are unrolled; kept in registers


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A dense row-major array.

    Attributes:
        name: Unique in its function.
        shape: Sizes; ``()`` holds one element. A :class:`~intarsia_runtime.size.Dim` may stand
            where an ``int`` does: it does the same arithmetic, and refuses to be compared.
        dtype: Element type.
        scope: Where it lives.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: MemoryScope = MemoryScope.GLOBAL

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.dtype.bytes
