# SPDX-License-Identifier: Apache-2.0
"""Weights that are computed when they are wanted.

Weights packed for a machine are as large as the model's. Whoever writes them to a file needs one at
a time, in memory that is used again: fresh memory has to be cleared by the system first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, TypeAlias, cast

from .mapped import release

if TYPE_CHECKING:
    import numpy as np


class DeferredArray:
    """An array whose elements are computed when somebody asks for them, and then kept.

    Args:
        shape: Its sizes.
        dtype: Its element type.
        fill: Writes all elements of a C-contiguous array of this shape and type; it may be called
            more than once, and does the same each time.
        source: What it is computed from, which may be a view of a mapped file.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        fill: Callable[[np.ndarray], None],
        source: np.ndarray | None = None,
    ) -> None:
        self.shape, self.dtype, self._fill, self._source = shape, dtype, fill, source
        self.nbytes = prod(shape) * dtype.itemsize
        self._array: np.ndarray | None = None

    def is_alike(self, other: DeferredArray) -> bool:
        """Whether another one is computed in the same way from equal arrays."""
        a, b = self._fill, other._fill
        if self.dtype != other.dtype or not (isinstance(a, partial) and isinstance(b, partial)):
            return False
        if a.func is not b.func or len(a.args) != len(b.args) or a.keywords or b.keywords:
            return False
        return all(map(_are_equal, a.args, b.args))

    def array(self) -> np.ndarray:
        """Return the array.

        Raises:
            MemoryError: There is no room for it.
        """
        if self._array is None:
            import numpy as np  # not loaded by those who read artifacts without running them

            self._array = self._computed(np.empty(self.shape, self.dtype))
        return self._array

    def into(self, memory: np.ndarray) -> np.ndarray:
        """Return the array, computed in the first bytes of ``memory`` unless it is there already.

        Args:
            memory: At least :attr:`nbytes` bytes, which may be written over when the caller is
                done with the result.
        """
        if self._array is not None:
            return self._array
        return self._computed(memory[: self.nbytes].view(self.dtype).reshape(self.shape))

    def _computed(self, array: np.ndarray) -> np.ndarray:
        """Fill an array; what it is computed from need not stay in memory."""
        self._fill(array)
        if self._source is not None:
            release([self._source])
        return array


def memory_for(size: int) -> np.ndarray:
    """Return so many bytes for :meth:`DeferredArray.into`."""
    import numpy as np

    return np.empty(size, np.uint8)


Content: TypeAlias = "np.ndarray | DeferredArray"
"""A C-contiguous array, or one that is computed when it is wanted."""

Piece: TypeAlias = "memoryview | DeferredArray"
"""Bytes, or an array of which they are wanted."""


def array_of(content: Content) -> np.ndarray:
    """Return an array, computed now if it is not yet."""
    return content.array() if isinstance(content, DeferredArray) else content


def are_alike(a: Content, b: Content) -> bool:
    """Whether two weights are seen to have equal elements, without computing them."""
    if isinstance(a, DeferredArray) and isinstance(b, DeferredArray):
        return a.shape == b.shape and a.is_alike(b)
    if isinstance(a, DeferredArray) or isinstance(b, DeferredArray):
        return False
    return _are_equal(a, b)


def _are_equal(a: object, b: object) -> bool:
    """Whether two arrays have the same bytes; others are compared as they are."""
    import numpy as np

    arrays = [isinstance(x, np.ndarray) for x in (a, b)]
    if all(arrays):
        return _have_same_bytes(cast("np.ndarray", a), cast("np.ndarray", b))
    return not any(arrays) and a == b


def _have_same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    if a is b or a.shape != b.shape or a.dtype != b.dtype:
        return a is b
    # Most weights of one shape differ in their first row.
    if a.ndim > 1 and a.size and a[0].tobytes() != b[0].tobytes():
        return False
    return a.tobytes() == b.tobytes()


class Weights(Mapping[str, "np.ndarray"]):
    """Arrays by name; one that is deferred is computed when it is asked for.

    Args:
        contents: Name to array, or to what computes it.

    Attributes:
        contents: The same.
    """

    def __init__(self, contents: Mapping[str, Content]) -> None:
        self.contents = contents

    def __getitem__(self, name: str) -> np.ndarray:
        return array_of(self.contents[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)


def contents_of(arrays: Mapping[str, np.ndarray]) -> Mapping[str, Content]:
    """Return arrays by name, without computing those that are deferred."""
    return arrays.contents if isinstance(arrays, Weights) else arrays
