# SPDX-License-Identifier: Apache-2.0
"""The first GPU through the CUDA driver: who it is, its memory, and a stream.

Imports no compiler. The binding can be handed in, so that calls can be tested without a driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intarsia_runtime.plugin import ResourceError, ToolchainError, WorkerLost

if TYPE_CHECKING:
    import numpy as np

_NO_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

HINT = "run on a machine with an NVIDIA GPU, or compile for another target"


def require_driver() -> Any:
    """Return the driver's binding.

    Raises:
        ToolchainError: It is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as cause:
        raise ToolchainError(
            f"the binding of the CUDA driver is not installed: {cause}",
            hint="pip install 'intarsia-tensorrt[cuda13]'",
        ) from None


class Gpu:
    """The first GPU, with a stream of its own.

    Args:
        driver: The binding; the installed one if ``None``.

    Raises:
        ToolchainError: The binding is not installed.
        WorkerLost: There is no driver or no GPU.
    """

    def __init__(self, driver: Any = None) -> None:
        self._cuda = cuda = require_driver() if driver is None else driver
        _checked(cuda.cuInit, 0)
        self._number = _checked(cuda.cuDeviceGet, 0)
        self._context = _checked(cuda.cuDevicePrimaryCtxRetain, self._number)
        self._memory: list[int] = []
        self._stream: Any = None
        self.enter()

    @property
    def identity(self) -> str:
        """What an engine depends on: model, compute capability, version of the driver."""
        cuda = self._cuda
        name = _checked(cuda.cuDeviceGetName, 128, self._number).partition(b"\0")[0].decode()
        major, minor = (
            _checked(cuda.cuDeviceGetAttribute, cuda.CUdevice_attribute(key), self._number)
            for key in (_MAJOR, _MINOR)
        )
        return f"{name}, sm_{major}{minor}, driver {_checked(cuda.cuDriverGetVersion)}"

    @property
    def stream(self) -> int:
        """Handle of the stream."""
        if self._stream is None:
            self._stream = _checked(self._cuda.cuStreamCreate, 1)
        return int(self._stream)

    def enter(self) -> None:
        """Make the GPU that of this thread."""
        _checked(self._cuda.cuCtxSetCurrent, self._context)

    def reserve(self, size: int) -> int:
        """Return the address of device memory."""
        address = int(_checked(self._cuda.cuMemAlloc, max(size, 1)))
        self._memory.append(address)
        return address

    def copy_in(self, to: int, source: np.ndarray) -> None:
        """Enqueue a copy of a contiguous array to the device."""
        data = source.ctypes.data
        _checked(self._cuda.cuMemcpyHtoDAsync, to, data, source.nbytes, self.stream)

    def copy_out(self, to: np.ndarray, source: int) -> None:
        """Enqueue a copy from the device to a contiguous array."""
        _checked(self._cuda.cuMemcpyDtoHAsync, to.ctypes.data, source, to.nbytes, self.stream)

    def wait(self) -> None:
        """Return when everything on the stream is done."""
        _checked(self._cuda.cuStreamSynchronize, self.stream)

    def close(self) -> None:
        """Give memory, stream and context back; harmless when repeated."""
        if self._context is None:
            return
        self.enter()
        for address in self._memory:
            _checked(self._cuda.cuMemFree, address)
        if self._stream is not None:
            _checked(self._cuda.cuStreamDestroy, self._stream)
        _checked(self._cuda.cuDevicePrimaryCtxRelease, self._number)
        self._context = None


def _checked(call: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the driver; return what it gives beside its status.

    Raises:
        WorkerLost: There is no driver or no GPU, or the device failed.
        ResourceError: No memory left.
    """
    try:
        status, *rest = call(*args)
    except (RuntimeError, OSError) as cause:
        raise WorkerLost(f"there is no CUDA driver: {cause}", hint=HINT) from cause
    if int(status) == _NO_MEMORY:
        raise ResourceError("the GPU has no memory left", hint="use a smaller batch or input")
    if int(status) != 0:
        raise WorkerLost(f"the CUDA driver failed: {status}", hint=HINT)
    return rest[0] if rest else None
