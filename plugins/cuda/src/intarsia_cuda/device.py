# SPDX-License-Identifier: Apache-2.0
"""What a loaded model asks of a device: the driver's, or the emulated one. Imports no compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np

    from .program import Start

ALIGNMENT = 256
"""Alignment of device memory in bytes."""


class CopyIn(Struct, frozen=True):
    """Copy host memory to the device."""

    to: int
    source: np.ndarray


class CopyOut(Struct, frozen=True):
    """Copy device memory to the host."""

    to: np.ndarray
    source: int


class CopyWithin(Struct, frozen=True):
    """Copy device memory to device memory."""

    to: int
    source: int
    bytes: int


class Launch(Struct, frozen=True):
    """Start a kernel with the addresses of its arguments."""

    kernel: str
    start: Start
    args: tuple[int, ...]


Work: TypeAlias = CopyIn | CopyOut | CopyWithin | Launch


class GpuDevice(Protocol):
    """Memory and a stream of work."""

    def reserve(self, size: int) -> int:
        """Return the address of ``size`` bytes at a multiple of :data:`ALIGNMENT`."""
        ...

    def staging(self, size: int) -> np.ndarray:
        """Return bytes of the host that the device can copy from and to while it works."""
        ...

    def upload(self, to: int, data: np.ndarray) -> None:
        """Copy host memory to the device now."""
        ...

    def record(self, work: Sequence[Work]) -> Callable[[], None]:
        """Return what carries out the work, in order, and returns when it is done."""
        ...

    def close(self) -> None:
        """Give everything back; harmless when repeated."""
        ...
