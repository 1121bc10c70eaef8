# SPDX-License-Identifier: Apache-2.0
"""A device that is this machine's CPU: runs what ``-emulate`` compiled. Imports no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.library import NativeLibrary

from .device import ALIGNMENT, CopyIn, CopyOut, CopyWithin, Launch, Work
from .program import STAMP

_Call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
"""``emulated_<kernel>(args, dims, fibers)``; 0 means success."""


class EmulatedDevice:
    """Memory of the host, and kernels in a shared library.

    Args:
        library: What :func:`intarsia_cuda.emulate.compile_emulated` returned.
        stamp: What it must carry, if it carries a stamp.

    Raises:
        ArtifactError: The library does not load, or is for another program.
    """

    def __init__(self, library: bytes, stamp: int = 0) -> None:
        self._memory: dict[int, np.ndarray] = {}
        self._library = NativeLibrary(library, "emulated")
        self._library.check_stamp(STAMP, stamp, "program")

    def reserve(self, size: int) -> int:
        """Return the address of new memory, full of a pattern that is NaN as a float."""
        block = np.full(size + ALIGNMENT, 0xFF, np.uint8)
        address = block.ctypes.data + -block.ctypes.data % ALIGNMENT
        self._memory[address] = block
        return address

    def release(self, address: int) -> None:
        """Forget memory."""
        self._memory.pop(address, None)

    def staging(self, size: int) -> np.ndarray:
        """Return new memory of the host."""
        return np.empty(size, np.uint8)

    def unstage(self, memory: np.ndarray) -> None:
        """Nothing: memory of the host is its own owner."""

    def upload(self, to: int, data: np.ndarray) -> None:
        """Copy now."""
        ctypes.memmove(to, data.ctypes.data, data.nbytes)

    def record(self, work: Sequence[Work]) -> Callable[[], None]:
        """Return what carries out the work."""
        steps = [self._step(item) for item in work]

        def run() -> None:
            for step in steps:
                step()

        return run

    def carry_out(self, work: Sequence[Work]) -> None:
        """Carry out the work."""
        self.record(work)()

    def forget(self, recorded: Callable[[], None]) -> None:
        """Nothing: a list of steps owns nothing."""

    def _step(self, item: Work) -> Callable[[], None]:
        match item:
            case CopyIn():
                return _copy(item.to, item.source.ctypes.data, item.source.nbytes)
            case CopyOut():
                return _copy(item.to.ctypes.data, item.source, item.to.nbytes)
            case CopyWithin():
                return _copy(item.to, item.source, item.bytes)
            case Launch():
                return self._launch(item)

    def _launch(self, item: Launch) -> Callable[[], None]:
        call = _Call(self._library.required(f"emulated_{item.kernel}"))
        values = (*item.args, *item.sizes)
        args = (ctypes.c_void_p * max(1, len(values)))(*values)
        dims = (ctypes.c_uint32 * 6)(*item.start.dims)

        def run() -> None:
            if call(args, dims, int(item.start.waits)) != 0:
                raise ArtifactError(
                    f"threads of '{item.kernel}' wait for others that never come",
                    hint="a barrier or shuffle stands where not all threads of a block pass",
                )

        return run

    def close(self) -> None:
        """Forget the memory and the code."""
        self._memory.clear()
        self._library.close()


def _copy(to: int, source: int, size: int) -> Callable[[], None]:
    def run() -> None:
        ctypes.memmove(to, source, size)

    return run
