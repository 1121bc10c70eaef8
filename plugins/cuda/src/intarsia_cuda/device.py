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
    """Start a kernel.

    Attributes:
        kernel: Its name.
        start: How many blocks and threads; all are numbers.
        args: Addresses of its arguments.
        sizes: Values of the size variables behind them.
    """

    kernel: str
    start: Start
    args: tuple[int, ...]
    sizes: tuple[int, ...] = ()


Work: TypeAlias = CopyIn | CopyOut | CopyWithin | Launch


class GpuDevice(Protocol):
    """Memory and a stream of work."""

    def reserve(self, size: int) -> int:
        """Return the address of ``size`` bytes at a multiple of :data:`ALIGNMENT`."""
        ...

    def release(self, address: int) -> None:
        """Give back what :meth:`reserve` returned; nothing recorded may use it any more."""
        ...

    def staging(self, size: int) -> np.ndarray:
        """Return bytes of the host that the device can copy from and to while it works."""
        ...

    def unstage(self, memory: np.ndarray) -> None:
        """Give back what :meth:`staging` returned."""
        ...

    def upload(self, to: int, data: np.ndarray) -> None:
        """Copy host memory to the device now."""
        ...

    def record(self, work: Sequence[Work]) -> Callable[[], None]:
        """Return what carries out the work, in order, and returns when it is done."""
        ...

    def carry_out(self, work: Sequence[Work]) -> None:
        """Carry out the work, in order, and return when it is done."""
        ...

    def forget(self, recorded: Callable[[], None]) -> None:
        """Give back what :meth:`record` returned."""
        ...

    def close(self) -> None:
        """Give everything back; harmless when repeated."""
        ...
